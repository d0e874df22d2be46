"""Tests of sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import (
    OPSETS,
    SEEDS,
    assert_same,
    batch_axis_of,
    random_array,
    shape_and_axis,
)
from support.harness import check, check_axis_rule, error_of, lowered_operators, single

NUMBERS = st.sampled_from([DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64])


def order_of(row: Array, descending: bool) -> list[int]:
    """Positions by Python's stable sort of (is NaN, number)."""
    keys = [(bool(v != v), 0 if v != v else v.item()) for v in row]
    if descending:
        keys = [(not nan, -number) for nan, number in keys]
    return sorted(range(len(keys)), key=keys.__getitem__)


def ordered(x: Array, axis: int, descending: bool) -> Array:
    """The order along each row."""
    rows = np.moveaxis(x, axis, -1)
    order = np.zeros(rows.shape, np.int32)
    for place in np.ndindex(rows.shape[:-1]):
        order[place] = order_of(rows[place], descending)
    return np.moveaxis(order, -1, axis)


@given(shape_and_axis(), st.booleans(), st.booleans(), NUMBERS, OPSETS, SEEDS, st.data())
def test_sort_and_argsort_against_onnx(
    pair: tuple[tuple[int, ...], int],
    descending: bool,
    special: bool,
    dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    shape, axis = pair
    x = random_array(seed, dtype, shape, special=special)
    batches = [batch_axis_of(data, shape)]
    attributes = {"axis": axis, "descending": descending}
    (positions,) = check("argsort", [x], batches, opset=opset, **attributes)
    assert_same(positions, ordered(x, axis, descending))
    (result,) = check("sort", [x], batches, opset=opset, **attributes)
    assert_same(result, np.take_along_axis(x, positions, axis))
    for name in ("sort", "argsort"):
        assert check_axis_rule(name, [x], **attributes) == len(shape) - 1


@given(shape_and_axis(), st.booleans(), NUMBERS, OPSETS, SEEDS, st.data())
def test_top_k_against_onnx(
    pair: tuple[tuple[int, ...], int],
    special: bool,
    dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    shape, axis = pair
    x = random_array(seed, dtype, shape, special=special)
    k = data.draw(st.integers(0, shape[axis]))
    batches = [batch_axis_of(data, shape, axis)]
    values, positions = check("top-k", [x], batches, k=k, axis=axis, opset=opset)
    want = np.take(ordered(x, axis, True), range(k), axis)
    assert_same(positions, want)
    assert_same(values, np.take_along_axis(x, want, axis))
    assert check_axis_rule("top-k", [x], k=k, axis=axis) == 2 * (len(shape) - 1)


@pytest.mark.parametrize("k", [1, 40, 4000])
def test_ties_go_to_the_lower_position(k: int) -> None:
    x = np.tile(np.array([0, 1], np.float32), 2000)
    _, positions = check("top-k", [x], k=k)
    assert positions.tolist() == [*range(1, 4000, 2), *range(0, 4000, 2)][:k]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 4), (0,)])
@pytest.mark.parametrize("name", ["sort", "argsort", "top-k"])
def test_no_elements_are_not_sorted(name: str, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.int32)
    attributes = {"k": min(2, shape[-1])} if name == "top-k" else {}
    for result in check(name, [x], **attributes):
        assert result.size == 0
    graph, _ = single(name, [x], **attributes)
    assert "TopK" not in lowered_operators(graph)


@pytest.mark.parametrize("name", ["sort", "argsort", "top-k"])
def test_sorting_refuses(name: str) -> None:
    k = {"k": 0} if name == "top-k" else {}
    x = np.zeros((2, 3), np.float32)
    error_of("E-VALUE-001", name, [x], axis=2, **k)  # sort 1, argsort 1, top-k 1
    long = np.broadcast_to(np.float32(0), (2**31,))
    error_of("E-VALUE-001", name, [long], **k)  # sort 1, argsort 1, top-k 1


def test_top_k_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    for k in (-1, 4):  # top-k 2
        error_of("E-VALUE-001", "top-k", [x], k=k)
    with pytest.raises(SexpgpuError) as caught:  # top-k 3
        single("top-k", [x], [0], k=1, axis=0)
    assert caught.value.code == "E-SHAPE-002"
