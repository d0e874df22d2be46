"""Tests of making axes longer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.operations.operation import WHOLE, all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import DTYPES, OPSETS, SEEDS, assert_same, batch_axis_of, random_array, shapes
from support.harness import check, check_axis_rule, check_graph, error_of, single


def padded(x: Array, widths: list[tuple[int, int]], mode: str, value: float) -> Array:
    """One element after another, by where it comes from."""
    shape = tuple(d + sum(w) for d, w in zip(x.shape, widths, strict=True))
    result = np.zeros(shape, x.dtype)
    for place in np.ndindex(shape):
        source = [p - w[0] for p, w in zip(place, widths, strict=True)]
        if mode == "constant":
            inside = all(0 <= s < d for s, d in zip(source, x.shape, strict=True))
            result[place] = x[tuple(source)] if inside else value
            continue
        for axis, length in enumerate(x.shape):
            if mode == "edge":
                source[axis] = min(max(source[axis], 0), length - 1)
            else:
                last = length - 1
                source[axis] = last - abs(last - abs(source[axis])) if last else 0
        result[place] = x[tuple(source)]
    return result


@given(
    shapes(0, 3),
    st.sampled_from(["constant", "edge", "reflect"]),
    st.sampled_from([0.0, 1.0, -np.inf, np.nan, 2.5]),
    DTYPES,
    OPSETS,
    SEEDS,
    st.data(),
)
def test_pad_against_onnx(
    shape: tuple[int, ...],
    mode: str,
    value: float,
    dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    if not dtype.is_float:
        value = 1.0
    batch = batch_axis_of(data, shape)
    widths = []
    for axis, length in enumerate(shape):
        most = {"constant": 2, "edge": 2 * (length > 0), "reflect": max(length - 1, 0)}[mode]
        side = st.integers(0, 0 if axis == batch else most)
        widths.append((data.draw(side), data.draw(side)))
    before, after = (tuple(w[i] for w in widths) for i in range(2))
    x = random_array(seed, dtype, shape, special=True)
    attributes = {"before": before, "after": after, "mode": mode, "value": value}
    (result,) = check("pad", [x], [batch], opset=opset, **attributes)
    assert_same(result, padded(x, widths, mode, value))
    kept = sum(w == (0, 0) for w in widths)
    assert check_axis_rule("pad", [x], **attributes) == kept


def test_pad_without_a_side() -> None:
    x = np.arange(2, dtype=np.int32)
    assert check("pad", [x], before=(1,))[0].tolist() == [0, 0, 1]
    assert check("pad", [x], after=(1,))[0].tolist() == [0, 1, 0]
    assert check("pad", [x])[0].tolist() == [0, 1]


def test_pad_refuses() -> None:
    x = np.zeros((2, 3), np.int32)
    error_of("E-VALUE-001", "pad", [x], before=(1,))  # pad 1
    error_of("E-VALUE-001", "pad", [x], after=(0, -1))  # pad 1
    with pytest.raises(SexpgpuError) as caught:  # pad 2
        single("pad", [x], [0], before=(1, 0))
    assert caught.value.code == "E-SHAPE-002"
    error_of("E-VALUE-001", "pad", [x], before=(1, 0), value=0.5)  # pad 3
    error_of("E-VALUE-001", "pad", [x[:0]], before=(1, 0), mode="edge")  # pad 4
    error_of("E-VALUE-001", "pad", [x], before=(0, 3), mode="reflect")  # pad 4
    error_of("E-SHAPE-003", "pad", [x[:0]], before=(0, 10**30))


@given(shapes(), DTYPES, OPSETS, SEEDS, st.data())
def test_tile_against_onnx(
    shape: tuple[int, ...], dtype: DType, opset: int, seed: int, data: Any
) -> None:
    x = random_array(seed, dtype, shape, special=True)
    repeats = tuple(data.draw(st.integers(0, 3)) for _ in shape)
    batch = batch_axis_of(data, shape)
    (result,) = check("tile", [x], [batch], repeats=repeats, opset=opset)
    want = x
    for axis, count in enumerate(repeats):
        want = np.concatenate([want] * count, axis) if count else np.take(want, [], axis)
    assert_same(result, want)
    assert check_axis_rule("tile", [x], repeats=repeats) == repeats.count(1)


def test_tile_of_the_batch() -> None:
    x = Value(TensorType(DType.F32, (Batch(2), 3)), name="x")
    node = make_node(all_operations()["tile"], [x], {"repeats": (3, 1)})
    assert node.results[0].type.shape == (Batch(6), 3)
    rule = node.operation.axis_rule(0, 0, [x.type], node.attributes, node.result_types)
    assert rule == [WHOLE]
    graph = Graph(inputs=[x], nodes=[node], outputs={"y": node.results[0]})
    check_graph(graph, {"x": random_array(0, DType.F32, (4, 3))}, {})


def test_tile_refuses() -> None:
    x = np.zeros((0, 3), np.int32)
    error_of("E-VALUE-001", "tile", [x], repeats=(2,))  # tile 1
    error_of("E-VALUE-001", "tile", [x], repeats=(2, -1))  # tile 1
    error_of("E-VALUE-001", "tile", [x], repeats=(10**30, 1))  # tile 1
