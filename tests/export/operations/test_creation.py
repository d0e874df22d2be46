"""Tests of operations that make tensors out of numbers and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.operations import creation
from sexpgpu.export.operations.operation import Rows, all_operations
from support.arrays import DTYPES, OPSETS, assert_same, shapes
from support.harness import check, check_axis_rule, check_graph, error_of, single

B = Batch()
NUMBERS = st.sampled_from([DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64])


def of_batch(records: int, name: str, opset: int = 18, **attributes: Any) -> Array:
    """What the operation makes beside an input of so many records, checked against ONNX."""
    records_of = Value(TensorType(DType.F32, (2, Batch(3))), name="records")
    node = make_node(all_operations()[name], [], attributes)
    graph = Graph(inputs=[records_of], nodes=[node], outputs={"y": node.results[0]})
    feeds = {"records": np.zeros((2, 3 * records), np.float32)}
    return check_graph(graph, feeds, {}, opset=opset)[0]


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 1, 3)])
def test_constant_of_every_dtype(dtype: DType, opset: int, shape: tuple[int, ...]) -> None:
    value = (np.arange(np.prod(shape, dtype=int)).reshape(shape) - 2).astype(dtype.numpy)
    (result,) = check("constant", [], value=value, opset=opset)
    assert_same(result, value)
    assert check_axis_rule("constant", [], value=value) == 0


@given(shapes(), DTYPES, OPSETS, st.sampled_from([0.0, 1.0, -3.0, 2.5, np.inf, -np.inf, np.nan]))
def test_full_against_onnx(shape: tuple[int, ...], dtype: DType, opset: int, value: float) -> None:
    if not dtype.is_float:
        value = 1.0 if dtype is DType.BOOL or not np.isfinite(value) else np.floor(value)
    (result,) = check("full", [], shape=shape, value=value, dtype=dtype, opset=opset)
    assert_same(np.ascontiguousarray(result).reshape(shape), np.full(shape, value, dtype.numpy))
    assert check_axis_rule("full", [], shape=shape, value=value, dtype=dtype) == 0


@pytest.mark.parametrize("dtype", list(DType))
def test_full_of_the_batch(dtype: DType) -> None:
    result = of_batch(5, "full", shape=(Batch(2), 3), value=1.0, dtype=dtype)
    assert_same(np.array(result), np.ones((10, 3), dtype.numpy))


def test_creation_for_some_rows_is_left_as_it_is() -> None:
    positions = Value(TensorType(DType.I32, (B, 2)), name="at")
    result = TensorType(DType.F32, (B, 9, 3))
    rows = Rows((), (), result, axis=1, count=2, positions=positions, causal=False)
    for name in ("full", "iota", "eye", "constant"):
        assert all_operations()[name].restrict(rows, {}) is None


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (DType.I32, 2.5),
        (DType.I32, 2.0**31),
        (DType.I64, 2.0**63),
        (DType.I64, np.inf),
        (DType.I32, np.nan),
        (DType.BOOL, 2.0),
        (DType.F32, 1e39),
        (DType.BF16, 1e39),
    ],
)
def test_full_refuses_numbers_that_the_dtype_does_not_have(dtype: DType, value: float) -> None:
    error_of("E-VALUE-001", "full", [], shape=(1,), value=value, dtype=dtype)  # full 2


def test_full_takes_the_extremes() -> None:
    for dtype, value in ((DType.I32, -(2.0**31)), (DType.I64, -(2.0**63)), (DType.F64, 1e300)):
        (result,) = check("full", [], shape=(1,), value=value, dtype=dtype)
        assert result[0] == value


def test_full_refuses_shapes() -> None:
    error_of("E-VALUE-001", "full", [], shape=(2, -1), value=0.0)  # full 1
    error_of("E-SHAPE-003", "full", [], shape=(10**12, 10**18), value=0.0)


@given(st.integers(0, 6), st.integers(-9, 9), st.integers(-9, 9), st.booleans(), NUMBERS, OPSETS)
def test_iota_against_onnx(
    length: int, start: int, step: int, halves: bool, dtype: DType, opset: int
) -> None:
    scale = 0.5 if halves and dtype.is_float else 1.0
    attributes = {"start": start * scale, "step": step * scale, "dtype": dtype}
    want = np.array([(start + i * step) * scale for i in range(length)]).astype(dtype.numpy)
    (result,) = check("iota", [], length=(length,), opset=opset, **attributes)
    assert_same(result, want)
    assert check_axis_rule("iota", [], length=(length,), **attributes) == 0
    if length:
        assert_same(of_batch(length, "iota", opset=opset, length=(B,), **attributes), want)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64])
def test_long_iota_is_computed(monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    monkeypatch.setattr(creation, "_STORED", 4)
    (result,) = check("iota", [], length=(9,), start=0.1 * dtype.is_float, step=3.0, dtype=dtype)
    assert result.shape == (9,)


def test_iota_along_the_batch_varies() -> None:
    _, node = single("iota", [], length=(4,))
    operation = node.operation
    assert operation.varies_along(node.attributes, node.results[0].type) == {0}
    assert_same(
        of_batch(2, "iota", length=(Batch(3),), start=0.0, step=1.0, dtype=DType.I32),
        np.arange(6, dtype=np.int32),
    )


def test_iota_refuses() -> None:
    error_of("E-SHAPE-001", "iota", [], length=(2, 3))  # iota 1
    error_of("E-VALUE-001", "iota", [], length=(-1,))  # iota 1
    error_of("E-DTYPE-002", "iota", [], length=(2,), dtype=DType.BOOL)  # iota 2
    error_of("E-VALUE-001", "iota", [], length=(2,), start=0.5)  # iota 3
    error_of("E-VALUE-001", "iota", [], length=(2,), step=0.5)  # iota 3
    error_of("E-VALUE-001", "iota", [], length=(3,), step=2.0**30)  # iota 3
    error_of("E-VALUE-001", "iota", [], length=(2**33,))  # iota 3
