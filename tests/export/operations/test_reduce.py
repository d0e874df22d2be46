"""Tests of the reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sexpgpu.export.graph.types import DType
from support.arrays import OPSETS, SEEDS, batch_axis_of, random_array, shapes
from support.harness import check, check_axis_rule


@st.composite
def reductions(draw: Any, least: int = 0) -> tuple[tuple[int, ...], tuple[int, ...] | None, bool]:
    """A shape, axes of it in any order and from either end, and whether they are kept."""
    shape = draw(shapes(0, 4, least))
    rank = len(shape)
    order = draw(st.permutations(range(rank)))[: draw(st.integers(0, rank))]
    axes = tuple(axis - draw(st.sampled_from([0, rank])) for axis in order)
    return shape, draw(st.sampled_from([axes, None])), draw(st.booleans())


@given(reductions(), st.sampled_from([DType.F32, DType.F64, DType.BF16]), OPSETS, SEEDS, st.data())
def test_sum_against_onnx(case: Any, dtype: DType, opset: int, seed: int, data: Any) -> None:
    shape, axes, keep = case
    x = random_array(seed, dtype, shape)
    batch = batch_axis_of(data, shape)
    (result,) = check("sum", [x], [batch], axis=axes, keep=keep, opset=opset)
    want = np.sum(x.astype(np.float64), axis=axes, keepdims=keep)
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=1e-2, atol=1e-4)
    left = 0 if axes is None else len(shape) - len(axes)
    assert check_axis_rule("sum", [x], axis=axes, keep=keep) == left


@given(reductions(1), st.sampled_from([DType.F32, DType.F64, DType.BF16]), OPSETS, SEEDS, st.data())
def test_mean_against_onnx(case: Any, dtype: DType, opset: int, seed: int, data: Any) -> None:
    shape, axes, keep = case
    x = random_array(seed, dtype, shape)
    batch = batch_axis_of(data, shape)
    check("mean", [x], [batch], axis=axes, keep=keep, opset=opset)
