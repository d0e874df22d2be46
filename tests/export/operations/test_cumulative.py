"""Tests of sums along the way."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import DType
from sexpgpu.export.operations.operation import WHOLE, Causal
from support.arrays import OPSETS, SEEDS, batch_axis_of, random_array, shape_and_axis
from support.harness import check, check_axis_rule, error_of, single

NUMBERS = st.sampled_from([DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64])


@given(
    shape_and_axis(), st.booleans(), st.booleans(), NUMBERS, st.booleans(), OPSETS, SEEDS, st.data()
)
def test_cumsum_against_onnx(
    pair: tuple[tuple[int, ...], int],
    exclusive: bool,
    reverse: bool,
    dtype: DType,
    special: bool,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    shape, axis = pair
    x = random_array(seed, dtype, shape, special=special)
    attributes = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    batch = batch_axis_of(data, shape)
    (result,) = check("cumsum", [x], [batch], opset=opset, **attributes)
    # Each position sums its own part.
    wide = x.astype(np.float32) if dtype is DType.BF16 else x
    rows, sums = np.moveaxis(wide, axis, 0), np.moveaxis(result, axis, 0)
    for i in range(shape[axis]):
        part = rows[i + exclusive :] if reverse else rows[: i + 1 - exclusive]
        with np.errstate(invalid="ignore"):
            want = np.sum(part, axis=0, dtype=wide.dtype).astype(x.dtype)
        np.testing.assert_allclose(
            sums[i].astype(np.float64), want.astype(np.float64), rtol=1e-2, atol=1e-4
        )
    claims = check_axis_rule("cumsum", [x], **attributes)
    assert claims == len(shape) - reverse


def test_cumsum_along_the_batch_mixes_records() -> None:
    x = np.zeros((2, 3), np.float32)
    for batch, fate in ((0, WHOLE), (1, Causal(0))):
        _, node = single("cumsum", [x], [batch], axis=0)
        rule = node.operation.axis_rule(0, 0, node.input_types, node.attributes, node.result_types)
        assert rule == [fate]


def test_cumsum_refuses() -> None:
    error_of("E-VALUE-001", "cumsum", [np.zeros(2, np.float32)], axis=1)  # cumsum 1
    error_of("E-DTYPE-002", "cumsum", [np.zeros(2, bool)])
