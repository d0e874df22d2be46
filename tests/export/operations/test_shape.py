"""Tests of adding, taking away and stretching axes of length 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.operations.operation import Rows, all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import (
    DTYPES,
    OPSETS,
    SEEDS,
    assert_same,
    batch_axis_of,
    random_array,
    shapes,
)
from support.harness import check, check_axis_rule, check_graph, error_of, single

B = Batch()


def test_broadcast_for_some_rows() -> None:
    x = Value(TensorType(DType.F32, (B, 1, 6)), name="x")
    result = TensorType(DType.F32, (B, 4, 6))
    positions = Value(TensorType(DType.I32, (B, 1)), name="at")
    rows = Rows((x,), (1,), result, axis=1, count=1, positions=positions, causal=False)
    restricted = all_operations()["broadcast-to"].restrict(rows, {"shape": (B, 4, 6)})
    assert restricted == ((x,), {"shape": (B, 1, 6)})


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
