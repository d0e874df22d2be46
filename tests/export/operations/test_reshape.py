"""Tests of reshape."""

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
    random_array,
)
from support.harness import check, check_axis_rule, check_graph

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
