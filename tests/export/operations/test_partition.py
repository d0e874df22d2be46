"""Tests of putting tensors together and taking them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Batch, DType, Shape, TensorType
from sexpgpu.export.operations.operation import WHOLE, all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import (
    DTYPES,
    OPSETS,
    SEEDS,
    assert_same,
    batch_axis_of,
    random_array,
    shape_and_axis,
)
from support.harness import check, check_axis_rule, check_graph, error_of

B = Batch()


def values(*shapes: Shape) -> list[Value]:
    return [Value(TensorType(DType.F32, s), name=f"x{i}") for i, s in enumerate(shapes)]


@given(shape_and_axis(), st.lists(st.integers(0, 3), max_size=2), DTYPES, OPSETS, SEEDS, st.data())
def test_concat_against_onnx(
    pair: tuple[tuple[int, ...], int],
    others: list[int],
    dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    shape, axis = pair
    place = axis % len(shape)
    lengths = [shape[place], *others]
    arrays = [
        random_array(seed + i, dtype, (*shape[:place], n, *shape[place + 1 :]), special=True)
        for i, n in enumerate(lengths)
    ]
    batch = batch_axis_of(data, shape, axis)
    (result,) = check("concat", arrays, [batch] * len(arrays), axis=axis, opset=opset)
    assert_same(result, np.concatenate(arrays, axis))
    assert check_axis_rule("concat", arrays, axis=axis) == len(arrays) * (len(shape) - 1)


def test_concat_along_the_batch() -> None:
    x = values((B, 2), (Batch(3), 2))
    node = make_node(all_operations()["concat"], x, {"axis": 0})
    assert node.results[0].type.shape == (Batch(4), 2)
    assert node.operation.axis_rule(0, 0, node.input_types, {"axis": 0}, node.result_types) == [
        WHOLE
    ]
    feeds = {f"x{i}": random_array(i, DType.F32, (2 + 4 * i, 2)) for i in range(2)}
    graph = Graph(inputs=x, nodes=[node], outputs={"y": node.results[0]})
    assert check_graph(graph, feeds, {})[0].shape == (8, 2)


def test_concat_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    error_of("E-VALUE-001", "concat", [], axis=0)  # concat 1
    error_of("E-VALUE-001", "concat", [x], axis=2)  # concat 1
    error_of("E-SHAPE-001", "concat", [x, x.T], axis=0)  # concat 2
    error_of("E-SHAPE-001", "concat", [x, x[0]], axis=0)  # concat 2
    with pytest.raises(SexpgpuError) as caught:  # concat 3
        make_node(all_operations()["concat"], values((B, 2), (1, 2)), {"axis": 0})
    assert caught.value.code == "E-SHAPE-002"


@given(shape_and_axis(), st.integers(1, 3), DTYPES, OPSETS, SEEDS, st.data())
def test_stack_against_onnx(
    pair: tuple[tuple[int, ...], int],
    count: int,
    dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    result_shape, axis = pair
    shape = result_shape[1:]
    arrays = [random_array(seed + i, dtype, shape, special=True) for i in range(count)]
    batch = batch_axis_of(data, shape)
    (result,) = check("stack", arrays, [batch] * count, axis=axis, opset=opset)
    assert_same(result, np.stack(arrays, axis))
    assert check_axis_rule("stack", arrays, axis=axis) == count * len(shape)


def test_stack_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    error_of("E-VALUE-001", "stack", [])  # stack 1
    error_of("E-SHAPE-001", "stack", [x, x.T])  # stack 2
    error_of("E-VALUE-001", "stack", [x], axis=3)  # stack 3


@given(shape_and_axis(), DTYPES, OPSETS, SEEDS, st.data())
def test_split_against_onnx(
    pair: tuple[tuple[int, ...], int], dtype: DType, opset: int, seed: int, data: Any
) -> None:
    shape, axis = pair
    length = shape[axis]
    divisors = [n for n in range(1, 5) if length % n == 0]
    cuts = st.lists(st.integers(0, length), min_size=1, max_size=3).map(sorted)
    chosen = data.draw(st.sampled_from(divisors) | cuts, "parts")
    if isinstance(chosen, int):
        parts, want = (chosen,), np.split(np.zeros(length), chosen)
    else:
        want = np.split(np.zeros(length), chosen)
        parts = tuple(len(w) for w in want)
    x = random_array(seed, dtype, shape, special=True)
    batch = batch_axis_of(data, shape, axis)
    results = check("split", [x], [batch], parts=parts, axis=axis, opset=opset)
    assert [r.shape[axis] for r in results] == [len(w) for w in want]
    assert_same(np.concatenate(results, axis), x)
    claims = len(results) * (len(shape) - 1)
    assert check_axis_rule("split", [x], parts=parts, axis=axis) == claims


@pytest.mark.parametrize("opset", [18, 23])
def test_split_of_the_batch_into_equal_parts(opset: int) -> None:
    x = values((3, Batch(4)))
    attributes = {"parts": (2,), "axis": -1}
    node = make_node(all_operations()["split"], x, attributes)
    assert [r.type.shape for r in node.results] == [(3, Batch(2))] * 2
    rule = node.operation.axis_rule(0, 1, node.input_types, attributes, node.result_types)
    assert rule == [WHOLE, WHOLE]
    graph = Graph(inputs=x, nodes=[node], outputs={"y": node.results[0], "z": node.results[1]})
    check_graph(graph, {"x0": random_array(0, DType.F32, (3, 12))}, {}, opset=opset)


def test_split_refuses() -> None:
    x = np.zeros((2, 6), np.float32)
    for parts in ((0,), (-1,), (4,)):  # split 1
        error_of("E-VALUE-001", "split", [x], parts=parts)
    for parts in ((2, 3), (-2, 8), ()):  # split 2
        error_of("E-VALUE-001", "split", [x], parts=parts)
    for parts in ((1, 1), (3,)):  # split 3
        with pytest.raises(SexpgpuError) as caught:
            make_node(all_operations()["split"], values((Batch(2),)), {"parts": parts, "axis": 0})
        assert caught.value.code == "E-SHAPE-002"
    many = np.zeros((0, 1), np.float32)
    error_of("E-VALUE-001", "split", [many], parts=(65_537,), axis=0)  # split 4
    error_of("E-VALUE-001", "split", [many], parts=(0,) * 65_537, axis=0)  # split 4
    error_of("E-VALUE-001", "split", [x], parts=(1,), axis=2)  # split 5
