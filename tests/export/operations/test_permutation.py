"""Tests of putting axes into another order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Batch, DType
from support.arrays import (
    DTYPES,
    OPSETS,
    SEEDS,
    assert_same,
    batch_axis_of,
    random_array,
    shape_and_axis,
    shapes,
)
from support.harness import check, check_axis_rule, error_of, single


@given(shapes(2), DTYPES, OPSETS, SEEDS, st.data())
def test_transpose_against_onnx(
    shape: tuple[int, ...], dtype: DType, opset: int, seed: int, data: Any
) -> None:
    x = random_array(seed, dtype, shape, special=True)
    axis = st.integers(-len(shape), len(shape) - 1)
    axes = data.draw(st.none() | st.tuples(axis, axis))
    batch = batch_axis_of(data, shape)
    (result,) = check("transpose", [x], [batch], axes=axes, opset=opset)
    assert_same(result, np.swapaxes(x, *(axes or (-2, -1))))
    assert check_axis_rule("transpose", [x], axes=axes) == len(shape)


def test_transpose_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    error_of("E-SHAPE-001", "transpose", [x[0]])  # transpose 1
    error_of("E-VALUE-001", "transpose", [x], axes=(0,))  # transpose 2
    error_of("E-VALUE-001", "transpose", [x], axes=(0, 2))  # transpose 2


@given(shapes(), DTYPES, OPSETS, SEEDS, st.data())
def test_permute_against_onnx(
    shape: tuple[int, ...], dtype: DType, opset: int, seed: int, data: Any
) -> None:
    x = random_array(seed, dtype, shape, special=True)
    order = data.draw(st.permutations(range(len(shape))))
    axes = tuple(axis - data.draw(st.sampled_from([0, len(shape)])) for axis in order)
    batch = batch_axis_of(data, shape)
    (result,) = check("permute", [x], [batch], axes=axes, opset=opset)
    assert_same(result, np.transpose(x, order))
    assert check_axis_rule("permute", [x], axes=axes) == len(shape)


def test_permute_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    for axes in ((0,), (0, 0), (0, 2), ()):  # permute 1
        error_of("E-VALUE-001", "permute", [x], axes=axes)


@given(shape_and_axis(), SEEDS)
def test_permutation_moves_the_batch(pair: tuple[tuple[int, ...], int], seed: int) -> None:
    shape, axis = pair
    order = tuple(reversed(range(len(shape))))
    x = random_array(seed, DType.F32, shape)
    _, node = single("permute", [x], [axis % len(shape)], axes=order)
    assert isinstance(node.results[0].type.shape[len(shape) - 1 - axis % len(shape)], Batch)
