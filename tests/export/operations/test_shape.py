"""Tests of operations that give the same elements another shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.reference import evaluate_node
from sexpgpu.export.graph.types import Batch, DType, Shape, TensorType, concrete
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Rows, all_operations
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
from support.harness import check, check_axis_rule, check_graph, error_of, single

B = Batch()


def reshape(shape: Shape, target: Shape) -> Shape:
    """The inferred shape."""
    x = Value(TensorType(DType.F32, shape), name="x")
    return make_node(all_operations()["reshape"], [x], {"shape": target}).results[0].type.shape


def reshape_fates(shape: Shape, target: Shape) -> list[Fate]:
    """What becomes of each axis of the only operand."""
    x = Value(TensorType(DType.F32, shape), name="x")
    node = make_node(all_operations()["reshape"], [x], {"shape": target})
    return [
        node.operation.axis_rule(0, axis, node.input_types, node.attributes, node.result_types)[0]
        for axis in range(len(shape))
    ]


@st.composite
def reshapes(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of as many elements: factors of both, grouped each their own way."""
    factors = draw(st.lists(st.integers(0, 4), max_size=5))

    def grouped() -> tuple[int, ...]:
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=3)))
        bounds = zip([0, *cuts], [*cuts, len(factors)], strict=True)
        return tuple(int(np.prod(factors[a:b], dtype=int)) for a, b in bounds)

    return grouped(), grouped()


@given(reshapes(), DTYPES, OPSETS, SEEDS, st.data())
def test_reshape_against_onnx(
    pair: tuple[tuple[int, ...], tuple[int, ...]], dtype: DType, opset: int, seed: int, data: Any
) -> None:
    shape, target = pair
    unknown = data.draw(st.integers(-1, len(target) - 1))
    if unknown >= 0 and all(d for a, d in enumerate(target) if a != unknown):
        target = tuple(-1 if a == unknown else d for a, d in enumerate(target))
    x = random_array(seed, dtype, shape, special=True)
    (result,) = check("reshape", [x], shape=target, opset=opset)
    assert result.tobytes() == x.tobytes()
    check_axis_rule("reshape", [x], shape=target)


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ((B, 16, 8), (-1, 8), (Batch(16), 8)),
        ((Batch(16), 8), (B, 16, 8), (B, 16, 8)),
        ((Batch(16), 8), (B, -1, 8), (B, 16, 8)),
        ((B, 6), (B, 2, -1), (B, 2, 3)),
        ((2, B, 3), (-1,), (Batch(6),)),
        ((B, 0), (B, -1), (B, 0)),
        ((0, 5), (-1, 3), (0, 3)),
        ((), (1, -1), (1, 1)),
        ((), (), ()),
    ],
)
def test_reshape_finds_what_is_left(shape: Shape, target: Shape, expected: Shape) -> None:
    assert reshape(shape, target) == expected


@pytest.mark.parametrize(
    ("code", "shape", "target"),
    [
        ("E-VALUE-001", (6,), (-1, -1)),  # reshape 1
        ("E-VALUE-001", (6,), (-2, -3)),  # reshape 1
        ("E-SHAPE-001", (6,), (4,)),  # reshape 2
        ("E-SHAPE-001", (B, 6), (6,)),  # reshape 2
        ("E-SHAPE-001", (6,), (B,)),  # reshape 2
        ("E-SHAPE-001", (6,), (4, -1)),  # reshape 3
        ("E-SHAPE-001", (0,), (0, -1)),  # reshape 3
        ("E-SHAPE-001", (3,), (B, -1)),  # reshape 3
        ("E-SHAPE-002", (B, B, 2), (-1,)),
    ],
)
def test_reshape_refuses(code: str, shape: Shape, target: Shape) -> None:
    with pytest.raises(SexpgpuError) as caught:
        reshape(shape, target)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ((B, 16, 8), (-1, 8), [Apart(0), WHOLE, Apart(1)]),
        ((Batch(16), 8), (B, 16, 8), [Apart(0), Apart(2)]),
        ((B, 4, 6), (B, 4, 2, 3), [Apart(0), Apart(1), WHOLE]),
        ((B, 4, 6), (B, 6, 4), [Apart(0), WHOLE, WHOLE]),
        ((2, B), (-1,), [WHOLE, WHOLE]),
        ((3, B, 2), (3, -1), [Apart(0), Apart(1), WHOLE]),
        ((Batch(2), 3), (2, B, 3), [WHOLE, Apart(2)]),
        ((1, 5), (5,), [WHOLE, Apart(0)]),
    ],
)
def test_reshape_keeps_axes_apart(shape: Shape, target: Shape, expected: list[Fate]) -> None:
    assert reshape_fates(shape, target) == expected


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((B, 3, 2), (-1, 2)),
        ((Batch(6), 2), (B, 3, 4)),
        ((3, B, 2), (3, -1)),
        ((Batch(4), 3), (Batch(2), 6)),
    ],
)
def test_reshape_keeps_the_blocks_of_records_apart(shape: Shape, target: Shape) -> None:
    x = Value(TensorType(DType.F32, shape), name="x")
    node = make_node(all_operations()["reshape"], [x], {"shape": target})
    axis = next(a for a, d in enumerate(shape) if isinstance(d, Batch))
    own = shape[axis]
    assert isinstance(own, Batch)
    (fate,) = node.operation.axis_rule(0, axis, [x.type], node.attributes, node.result_types)
    assert isinstance(fate, Apart)
    moved = node.results[0].type.shape[fate.axis]
    assert isinstance(moved, Batch)
    records = 3
    array = random_array(0, DType.F32, concrete(shape, records))
    (base,) = evaluate_node(node, [array], records)
    check_graph(Graph(inputs=[x], nodes=[node], outputs={"y": node.results[0]}), {"x": array}, {})
    for record in range(records):
        changed = array.copy()
        block = slice(record * own.multiple, (record + 1) * own.multiple)
        changed[(slice(None),) * axis + (block,)] += 1
        (after,) = evaluate_node(node, [changed], records)
        differs = np.moveaxis(after != base, fate.axis, 0).reshape(records, -1)
        assert differs.all(axis=1).tolist() == [r == record for r in range(records)]
        assert differs.any(axis=1).tolist() == [r == record for r in range(records)]


def test_reshape_for_some_rows() -> None:
    x = Value(TensorType(DType.F32, (B, 1, 6)), name="x")
    result = TensorType(DType.F32, (B, 4, 2, 3))
    positions = Value(TensorType(DType.I32, (B, 1)), name="at")
    rows = Rows((x,), (1,), result, axis=1, count=1, positions=positions, causal=False)
    attributes = {"shape": (-1, 4, 2, 3)}
    restricted = all_operations()["reshape"].restrict(rows, attributes)
    assert restricted == ((x,), {"shape": (B, 1, 2, 3)})
    unreduced = Rows((x,), (None,), result, axis=1, count=1, positions=positions, causal=False)
    assert all_operations()["reshape"].restrict(unreduced, attributes) is None


def test_broadcast_for_some_rows() -> None:
    x = Value(TensorType(DType.F32, (B, 1, 6)), name="x")
    result = TensorType(DType.F32, (B, 4, 6))
    positions = Value(TensorType(DType.I32, (B, 1)), name="at")
    rows = Rows((x,), (1,), result, axis=1, count=1, positions=positions, causal=False)
    restricted = all_operations()["broadcast-to"].restrict(rows, {"shape": (B, 4, 6)})
    assert restricted == ((x,), {"shape": (B, 1, 6)})


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


@given(shapes(), DTYPES, OPSETS, SEEDS, st.data())
def test_broadcast_to_against_onnx(
    shape: tuple[int, ...], dtype: DType, opset: int, seed: int, data: Any
) -> None:
    stretched = [data.draw(st.booleans()) for _ in shape]
    own = tuple(1 if s else d for s, d in zip(stretched, shape, strict=True))
    own = own[data.draw(st.integers(0, len(own))) :]
    x = random_array(seed, dtype, own, special=True)
    (result,) = check("broadcast-to", [x], shape=shape, opset=opset)
    assert_same(result, np.broadcast_to(x, shape))
    lead = len(shape) - len(own)
    kept = sum(d == shape[lead + axis] for axis, d in enumerate(own))
    assert check_axis_rule("broadcast-to", [x], shape=shape) == kept


def test_broadcast_to_the_batch() -> None:
    x = np.arange(3, dtype=np.float32)
    graph, _ = single("broadcast-to", [x], shape=(3,))
    batch = Value(TensorType(DType.F32, (B,)), name="b")
    node = make_node(all_operations()["broadcast-to"], graph.inputs, {"shape": (Batch(2), 3)})
    added = make_node(all_operations()["broadcast-to"], [batch], {"shape": (4, B)})
    outputs = {"y": node.results[0], "z": added.results[0]}
    both = Graph(inputs=[*graph.inputs, batch], nodes=[node, added], outputs=outputs)
    y, z = check_graph(both, {"x0": x, "b": np.arange(5, dtype=np.float32)}, {})
    assert y.shape == (10, 3)
    assert z.shape == (4, 5)


def test_broadcast_to_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    for shape in ((3,), (3, 3), (2, 1), (B, 3)):  # broadcast-to 1
        error_of("E-SHAPE-001", "broadcast-to", [x], shape=shape)
    error_of("E-VALUE-001", "broadcast-to", [x], shape=(-1, 3))  # broadcast-to 2


@given(shapes(), DTYPES, OPSETS, SEEDS, st.data())
def test_squeeze_and_unsqueeze_against_onnx(
    shape: tuple[int, ...], dtype: DType, opset: int, seed: int, data: Any
) -> None:
    x = random_array(seed, dtype, shape, special=True)
    count = data.draw(st.integers(0, 2))
    rank = len(shape) + count
    axes = tuple(data.draw(st.permutations(range(rank)))[:count])
    axes = tuple(axis - data.draw(st.sampled_from([0, rank])) for axis in axes)
    batch = batch_axis_of(data, shape)
    (longer,) = check("unsqueeze", [x], [batch], axis=axes, opset=opset)
    assert_same(longer, np.expand_dims(x, axes))
    assert check_axis_rule("unsqueeze", [x], axis=axes) == len(shape)
    (shorter,) = check("squeeze", [longer], axis=axes, opset=opset)
    assert_same(shorter, x)
    assert check_axis_rule("squeeze", [longer], axis=axes) == len(shape)


def test_squeeze_refuses() -> None:
    x = np.zeros((1, 2), np.float32)
    error_of("E-SHAPE-001", "squeeze", [x], axis=(1,))  # squeeze 1
    error_of("E-VALUE-001", "squeeze", [x], axis=(2,))
    with pytest.raises(SexpgpuError, match="length 1"):
        single("squeeze", [x], [0], axis=(0,))


def test_unsqueeze_refuses() -> None:
    x = np.zeros((1, 2), np.float32)
    error_of("E-VALUE-001", "unsqueeze", [x], axis=(0, 0))  # unsqueeze 1
    error_of("E-VALUE-001", "unsqueeze", [x], axis=(3,))  # unsqueeze 1


@given(shape_and_axis(), SEEDS)
def test_permutation_moves_the_batch(pair: tuple[tuple[int, ...], int], seed: int) -> None:
    shape, axis = pair
    order = tuple(reversed(range(len(shape))))
    x = random_array(seed, DType.F32, shape)
    _, node = single("permute", [x], [axis % len(shape)], axes=order)
    assert isinstance(node.results[0].type.shape[len(shape) - 1 - axis % len(shape)], Batch)
