"""Tests of reading and adding at places that indices name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.reference import evaluate_node
from sexpgpu.export.graph.types import Array, Batch, DType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.schemas.errors import SexpgpuError
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
from support.harness import check, check_axis_rule, error_of, run_onnx, single

INDEX_DTYPES = st.sampled_from([DType.I32, DType.I64])


def indices_for(seed: int, dtype: DType, shape: tuple[int, ...], size: int) -> Array:
    """Indices into an axis of this size, from both ends."""
    generator = np.random.default_rng(seed)
    return np.asarray(generator.integers(-size, size, shape)).astype(dtype.numpy)


@given(shape_and_axis(least=1), shapes(0, 2), DTYPES, INDEX_DTYPES, OPSETS, SEEDS, st.data())
def test_take_against_onnx(
    pair: tuple[tuple[int, ...], int],
    index_shape: tuple[int, ...],
    dtype: DType,
    index_dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    shape, axis = pair
    x = random_array(seed, dtype, shape, special=True)
    indices = indices_for(seed, index_dtype, index_shape, shape[axis])
    batches = data.draw(
        st.sampled_from(
            [[batch_axis_of(data, shape, axis), None], [None, batch_axis_of(data, index_shape)]]
        )
    )
    (result,) = check("take", [x, indices], batches, axis=axis, opset=opset)
    assert_same(result, np.asarray(np.take(x, indices % shape[axis], axis)))
    claims = check_axis_rule("take", [x, indices], axis=axis)
    assert claims == len(shape) - 1 + len(index_shape)


def test_take_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    error_of("E-VALUE-001", "take", [x, np.zeros(1, np.int32)], axis=2)  # take 1
    error_of("E-DTYPE-002", "take", [x, np.zeros(1, np.float32)])


def both_refuse(name: str, inputs: list[Array], **attributes: Any) -> None:
    """The reference and the runtime stop at an index out of range."""
    graph, node = single(name, inputs, **attributes)
    with pytest.raises(SexpgpuError) as caught:
        evaluate_node(node, inputs, 1)
    assert caught.value.code == "E-VALUE-001"
    model = build_model(graph, {}.__getitem__, BuildOptions())
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        run_onnx(model, {f"x{i}": array for i, array in enumerate(inputs)})


@pytest.mark.parametrize("index", [3, -4, 2**31 - 1])
def test_out_of_range_stops_the_call(index: int) -> None:
    x = np.ones((2, 3), np.float32)
    both_refuse("take", [x, np.array([0, index], np.int32)], axis=1)  # take 2
    places = np.array([[0, 1], [1, index]], np.int32)
    both_refuse("gather-nd", [x, places])  # gather-nd 3


@given(shape_and_axis(least=1), st.integers(0, 4), DTYPES, INDEX_DTYPES, OPSETS, SEEDS, st.data())
def test_take_along_against_onnx(
    pair: tuple[tuple[int, ...], int],
    count: int,
    dtype: DType,
    index_dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    shape, axis = pair
    place = axis % len(shape)
    x = random_array(seed, dtype, shape, special=True)
    index_shape = (*shape[:place], count, *shape[place + 1 :])
    indices = indices_for(seed, index_dtype, index_shape, shape[axis])
    batch = batch_axis_of(data, shape, axis)
    (result,) = check("take-along", [x, indices], [batch, batch], axis=axis, opset=opset)
    for spot in np.ndindex(index_shape):
        source = (*spot[:place], indices[spot], *spot[place + 1 :])
        assert result[spot].tobytes() == x[source].tobytes()
    claims = check_axis_rule("take-along", [x, indices], axis=axis)
    assert claims == 2 * len(shape) - 1


def test_take_along_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    indices = np.zeros((2, 1), np.int64)
    error_of("E-VALUE-001", "take-along", [x, indices], axis=2)  # take-along 1
    error_of("E-SHAPE-001", "take-along", [x, indices[0]])  # take-along 1
    error_of("E-SHAPE-001", "take-along", [x, indices[:1]])  # take-along 2
    both_refuse("take-along", [x, indices + 3])  # take-along 3


def gathered(x: Array, indices: Array, shared: int) -> Array:
    """gather-nd one place after another."""
    count = indices.shape[-1]
    result = np.zeros((*indices.shape[:-1], *x.shape[shared + count :]), x.dtype)
    for place in np.ndindex(indices.shape[:-1]):
        result[place] = x[(*place[:shared], *indices[place])]
    return result


@st.composite
def gathers(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The shapes of x and of indices into it, and how many batch dimensions they share."""
    x = draw(shapes(1, 4, 1))
    shared = draw(st.integers(0, len(x) - 1))
    count = draw(st.integers(1, len(x) - shared))
    places = draw(shapes(0, 2))
    return x, (*x[:shared], *places, count), shared


@given(gathers(), DTYPES, INDEX_DTYPES, OPSETS, SEEDS, st.booleans())
def test_gather_nd_against_onnx(
    case: tuple[tuple[int, ...], tuple[int, ...], int],
    dtype: DType,
    index_dtype: DType,
    opset: int,
    seed: int,
    batched: bool,
) -> None:
    shape, index_shape, shared = case
    x = random_array(seed, dtype, shape, special=True)
    count = index_shape[-1]
    sizes = np.array(shape[shared : shared + count])
    generator = np.random.default_rng(seed)
    indices = generator.integers(-sizes, sizes, index_shape).astype(index_dtype.numpy)
    batches = [0, 0] if batched and shared else []
    attributes = {"batch-dims": shared}
    (result,) = check("gather-nd", [x, indices], batches, opset=opset, **attributes)
    assert_same(result, gathered(x, indices, shared))
    # Any coordinate may then stand in for another.
    narrow = (indices % sizes.min()).astype(index_dtype.numpy)
    claims = check_axis_rule("gather-nd", [x, narrow], **attributes)
    assert claims == len(shape) - count + len(index_shape) - 1


def test_gather_nd_refuses() -> None:
    x, places = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.int64)
    for shared in (-1, 2):  # gather-nd 1
        error_of("E-VALUE-001", "gather-nd", [x, places], **{"batch-dims": shared})
    error_of("E-SHAPE-001", "gather-nd", [x, places[:1]], **{"batch-dims": 1})  # gather-nd 1
    for count in (0, 3):  # gather-nd 2
        error_of("E-SHAPE-001", "gather-nd", [x, np.zeros((2, count), np.int64)])
    with pytest.raises(SexpgpuError) as caught:
        single("gather-nd", [x, places[:, 0]], [None, 0], **{"batch-dims": 0})
    assert caught.value.code == "E-SHAPE-002"
    assert isinstance(single("take", [x, places], [0])[1].input_types[0].shape[0], Batch)
