"""Tests of tensors of 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import DType
from sexpgpu.export.operations import creation
from support.arrays import DTYPES, OPSETS, SEEDS, assert_same, batch_axis_of, shapes
from support.harness import check, check_axis_rule, error_of, single


@given(
    st.integers(0, 4),
    st.none() | st.integers(0, 4),
    st.integers(-5, 5) | st.sampled_from([2**63, -(10**30)]),
    DTYPES,
    OPSETS,
)
def test_eye_against_onnx(
    rows: int, columns: int | None, offset: int, dtype: DType, opset: int
) -> None:
    attributes = {"rows": rows, "columns": columns, "offset": offset, "dtype": dtype}
    (result,) = check("eye", [], opset=opset, **attributes)
    width = rows if columns is None else columns
    want = [[j - i == offset for j in range(width)] for i in range(rows)]
    assert_same(result, np.array(want, bool).reshape(rows, width).astype(dtype.numpy))
    assert check_axis_rule("eye", [], **attributes) == 0


def test_large_eye_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation, "_STORED", 4)
    (result,) = check("eye", [], rows=9, offset=-2)
    assert result.sum() == 7


def test_eye_varies_along_both_axes() -> None:
    _, node = single("eye", [], rows=2)
    assert node.operation.varies_along(node.attributes, node.results[0].type) == {0, 1}


def test_eye_refuses() -> None:
    error_of("E-VALUE-001", "eye", [], rows=-1)  # eye 1
    error_of("E-VALUE-001", "eye", [], rows=1, columns=-1)  # eye 1
    error_of("E-SHAPE-003", "eye", [], rows=10**9)


@given(
    shapes(0, 3),
    st.integers(0, 4),
    DTYPES,
    st.sampled_from([DType.I32, DType.I64]),
    OPSETS,
    SEEDS,
    st.data(),
)
def test_one_hot_against_onnx(
    shape: tuple[int, ...],
    depth: int,
    dtype: DType,
    index_dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    rank = len(shape) + 1
    axis = data.draw(st.integers(-rank, rank - 1))
    generator = np.random.default_rng(seed)
    indices = generator.integers(-depth - 2, depth + 3, shape).astype(index_dtype.numpy)
    extremes = np.iinfo(indices.dtype)
    drawn = generator.random(shape)
    indices = np.where(drawn < 0.1, extremes.min, np.where(drawn > 0.9, extremes.max, indices))
    indices = np.asarray(indices.astype(index_dtype.numpy))
    attributes = {"depth": depth, "axis": axis, "dtype": dtype}
    batch = batch_axis_of(data, shape)
    (result,) = check("one-hot", [indices], [batch], opset=opset, **attributes)
    last = np.moveaxis(result, axis, -1)
    for place in np.ndindex(shape):
        index = int(indices[place])
        want = np.zeros(depth, dtype.numpy)
        if -depth <= index < depth:
            want[index] = 1
        assert_same(np.array(last[place]), want)
    assert check_axis_rule("one-hot", [indices], **attributes) == len(shape)


def test_one_hot_refuses() -> None:
    indices = np.zeros((2, 3), np.int32)
    error_of("E-VALUE-001", "one-hot", [indices], depth=-1)  # one-hot 1
    error_of("E-VALUE-001", "one-hot", [indices], depth=1, axis=3)  # one-hot 2
    error_of("E-DTYPE-002", "one-hot", [indices.astype(np.float32)], depth=1)
