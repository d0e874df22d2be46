"""Tests of adding at places that indices name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.graph.reference import evaluate_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.operations.operation import Rows, all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import OPSETS, SEEDS, random_array, shapes
from support.harness import check, check_axis_rule, error_of, run_onnx, single

NUMBERS = st.sampled_from([DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64])
INDEX_DTYPES = st.sampled_from([DType.I32, DType.I64])


#: What becomes of what stands at a place, and an update for it.
KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "scatter-add": lambda old, new: old + new,
    "scatter-max": lambda old, new: np.maximum(old, new),
    "scatter-min": lambda old, new: np.minimum(old, new),
    "scatter-set": lambda old, new: new,
}


def scattered(name: str, x: Array, indices: Array, updates: Array, shared: int) -> Array:
    """One update after another."""
    wide = np.float32 if x.dtype == ml_dtypes.bfloat16 else x.dtype
    result = x.astype(wide)
    for place in np.ndindex(indices.shape[:-1]):
        at = (*place[:shared], *indices[place])
        result[at] = KINDS[name](result[at], updates[place].astype(wide))
    return result.astype(x.dtype)


@st.composite
def scatters(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The shapes of x and of indices into it, and how many batch dimensions they share."""
    x = draw(shapes(1, 4, 1))
    shared = draw(st.integers(0, len(x) - 1))
    count = draw(st.integers(1, len(x) - shared))
    return x, (*x[:shared], *draw(shapes(0, 2)), count), shared


@given(st.sampled_from([*KINDS]), scatters(), NUMBERS, INDEX_DTYPES, OPSETS, SEEDS, st.booleans())
def test_scatter_against_onnx(
    name: str,
    case: tuple[tuple[int, ...], tuple[int, ...], int],
    dtype: DType,
    index_dtype: DType,
    opset: int,
    seed: int,
    batched: bool,
) -> None:
    shape, index_shape, shared = case
    count = index_shape[-1]
    # The order in which infinities are added matters.
    special = dtype.is_integer or name != "scatter-add"
    generator = np.random.default_rng(seed)
    sizes = np.array(shape[shared : shared + count])
    indices = generator.integers(-sizes, sizes, index_shape).astype(index_dtype.numpy)
    x = random_array(seed, dtype, shape, special=special)
    updates = random_array(
        seed + 1, dtype, (*index_shape[:-1], *shape[shared + count :]), special=special
    )
    # The batch is shared, or an axis of what stands at a place.
    batches: list[int | None] = []
    if batched and shared:
        batches = [0, 0, 0]
    elif batched and shared + count < len(shape):
        batches = [len(shape) - 1, None, updates.ndim - 1]
    attributes = {"batch-dims": shared}
    inputs = [x, indices, updates]
    (result,) = check(name, inputs, batches, opset=opset, **attributes)
    with np.errstate(over="ignore"):
        want = scattered(name, x, indices, updates, shared)
    np.testing.assert_array_equal(result.astype(np.float64), want.astype(np.float64))
    # Any coordinate may then stand in for another.
    narrow = (indices % sizes.min()).astype(index_dtype.numpy)
    claims = check_axis_rule(name, [x, narrow, updates], **attributes)
    assert claims == len(shape) + shared + (len(shape) - count)


def test_the_last_of_several_is_set() -> None:
    indices = np.random.default_rng(0).integers(0, 3, (10_000, 1))
    (result,) = check("scatter-set", [np.zeros(3), indices, np.arange(10_000.0)])
    assert result.tolist() == [np.flatnonzero(indices == place)[-1] for place in range(3)]


@pytest.mark.parametrize("name", ["scatter-max", "scatter-min"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_nan_among_several_is_kept(name: str, dtype: type) -> None:
    x = np.array([0, np.nan, 0, 5, -5], dtype)
    indices = np.array([[0], [0], [0], [1], [2], [3], [4]])
    updates = np.array([1, np.nan, 2, 1, np.inf, -np.inf, 0], dtype)
    (result,) = check(name, [x, indices, updates])
    assert np.isnan(result).tolist() == [True, True, False, False, False]


def test_booleans_are_set() -> None:
    x, places = np.array([True, False, True]), np.array([[1], [-1]])
    assert check("scatter-set", [x, places, ~x[:2]])[0].tolist() == [True, False, True]
    error_of("E-DTYPE-002", "scatter-max", [x, places, x[:2]])


def test_scatter_add_adds_every_duplicate() -> None:
    indices = np.random.default_rng(0).integers(0, 3, (10_000, 1))
    (result,) = check(
        "scatter-add", [np.zeros(3, np.float32), indices, np.ones(10_000, np.float32)]
    )
    assert result.tolist() == np.bincount(indices[:, 0]).tolist()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("index", [[3], [-4], [0, 3], [2, 0], [-3, 0], [0, -4]])
def test_scatter_stops_out_of_range(index: list[int], name: str) -> None:
    x = np.ones((2, 3) if len(index) == 2 else 3, np.float32)  # scatter-add 5
    inputs = [x, np.array([index]), np.ones(1, np.float32)]
    graph, node = single(name, inputs)
    with pytest.raises(SexpgpuError) as caught:
        evaluate_node(node, inputs, 1)
    assert caught.value.code == "E-VALUE-001"
    model = build_model(graph, {}.__getitem__, BuildOptions())
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        run_onnx(model, {f"x{i}": array for i, array in enumerate(inputs)})


@pytest.mark.parametrize("name", KINDS)
def test_scatter_refuses(name: str) -> None:
    x, places = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.int64)
    updates = np.zeros((2, 3), np.float32)
    for shared in (-1, 2):  # scatter-add 1
        error_of("E-VALUE-001", name, [x, places, updates], **{"batch-dims": shared})
    wide = np.zeros((2, 3), np.int64)
    error_of("E-SHAPE-001", name, [x, wide, updates])  # scatter-add 2
    error_of("E-SHAPE-001", name, [x, places, updates[:1]])  # scatter-add 3
    error_of("E-DTYPE-001", name, [x, places, updates.astype(np.float64)])
    with pytest.raises(SexpgpuError) as caught:  # scatter-add 4
        single(name, [x, places, updates], [0])
    assert caught.value.code == "E-SHAPE-002"


def test_scatter_add_for_some_rows() -> None:
    batch = Batch()
    values = tuple(
        Value(TensorType(dtype, shape), name=name)
        for name, dtype, shape in (
            ("x", DType.F32, (batch, 9, 1)),
            ("indices", DType.I32, (batch, 4, 1)),
            ("updates", DType.F32, (batch, 4, 1)),
        )
    )
    at = Value(TensorType(DType.I32, (batch, 1)), name="at")
    operation = all_operations()["scatter-add"]
    result = TensorType(DType.F32, (batch, 9, 5))
    attributes = {"batch-dims": 1}
    rows = Rows(values, (2, None, 2), result, axis=2, count=1, positions=at, causal=False)
    assert operation.restrict(rows, attributes) == (values, attributes)
    rows = Rows(values, (1, None, None), result, axis=1, count=1, positions=at, causal=False)
    assert operation.restrict(rows, attributes) is None
