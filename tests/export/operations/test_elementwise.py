"""What must hold for every elementwise operation over every dtype of its."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import random_array
from support.elementwise import (
    ABSOLUTE,
    ATTRIBUTES,
    arity,
    arrange,
    cases,
    check_random,
    edges,
)
from support.harness import check, check_axis_rule, error_of

_NAMES = list(dict.fromkeys(name for name, _ in cases()))


def _dtypes(name: str) -> list[DType]:
    return [dtype for other, dtype in cases() if other == name]


@pytest.mark.parametrize(("name", "dtype"), cases())
@settings(max_examples=12)
@given(data=st.data())
def test_onnx_gives_what_numpy_means(name: str, dtype: DType, data: Any) -> None:
    check_random(data, name, dtype)


@pytest.mark.parametrize(("name", "dtype"), cases())
def test_every_pair_of_edge_values(name: str, dtype: DType) -> None:
    values = edges(dtype)
    arrays = [values[:, None], values] if arity(name) == 2 else [values]
    inputs = arrange(name, arrays, np.arange(values.size) % 3 == 0)
    check(name, inputs, absolute=ABSOLUTE.get((name, dtype)), **ATTRIBUTES.get(name, {}))


@pytest.mark.parametrize("opset", [19, 20, 21, 22, 23, 24, 25])
@pytest.mark.parametrize("name", _NAMES)
def test_every_opset(name: str, opset: int) -> None:
    for dtype in _dtypes(name):
        inputs = arrange(name, [edges(dtype)] * arity(name), np.array(True))
        absolute = ABSOLUTE.get((name, dtype))
        check(name, inputs, absolute=absolute, opset=opset, **ATTRIBUTES.get(name, {}))


@pytest.mark.parametrize(("name", "dtype"), cases())
def test_long_vectors_take_the_same_values_as_short_ones(name: str, dtype: DType) -> None:
    """Kernels have a vector body and a tail."""
    arrays = [random_array(i, dtype, (1, 301), special=True) for i in range(arity(name))]
    inputs = arrange(name, arrays, np.arange(301) % 3 == 0)
    check(name, inputs, absolute=ABSOLUTE.get((name, dtype)), **ATTRIBUTES.get(name, {}))


@pytest.mark.parametrize(("name", "dtype"), cases())
def test_every_axis_that_is_not_stretched_stays_apart(name: str, dtype: DType) -> None:
    arrays = [random_array(i, dtype, (3, 4) if i else (3, 1)) for i in range(arity(name))]
    inputs = arrange(name, arrays, np.array([True, False, True])[:, None])
    claims = check_axis_rule(name, inputs, **ATTRIBUTES.get(name, {}))
    # An operand of one column beside one of four has no positions along it.
    stretched = {1: 0, 2: 1, 3: 2}[len(inputs)]
    assert claims == 2 * len(inputs) - stretched


@pytest.mark.parametrize("name", [n for n in _NAMES if arity(n) == 2])
def test_shapes_that_do_not_broadcast_are_refused(name: str) -> None:
    dtype = _dtypes(name)[0]
    arrays = [random_array(0, dtype, (2, 3)), random_array(0, dtype, (4,))]
    error = error_of("E-SHAPE-001", name, arrange(name, arrays, np.array(True)))
    assert "[2, 3] and [4]" in str(error.came)


@pytest.mark.parametrize("name", [n for n in _NAMES if arity(n) == 2 and len(_dtypes(n)) > 1])
def test_two_dtypes_are_refused(name: str) -> None:
    arrays = [random_array(0, dtype, (2,)) for dtype in _dtypes(name)[:2]]
    error = error_of("E-DTYPE-001", name, arrange(name, arrays, np.array(True)))
    assert "cast" in str(error.help)


@pytest.mark.parametrize("name", [n for n in _NAMES if len(_dtypes(n)) < len(DType)])
def test_other_dtypes_are_refused(name: str) -> None:
    barred = next(dtype for dtype in DType if dtype not in _dtypes(name))
    arrays = [random_array(0, barred, (2,))] * arity(name)
    error = error_of("E-DTYPE-002", name, arrays, **ATTRIBUTES.get(name, {}))
    assert f"`{name}` has no meaning for {barred}" in error.message


def test_the_batch_meets_no_other_size() -> None:
    add = all_operations()["+"]
    batch, three = (TensorType(DType.F32, (size, 2)) for size in (Batch(), 3))
    with pytest.raises(SexpgpuError, match="do not broadcast"):
        add.infer_checked([batch, three], {})
    assert add.infer_checked([batch, TensorType(DType.F32, (1, 2))], {}) == (batch,)


def test_bf16_is_computed_in_f32_and_rounded_once() -> None:
    x = np.array([1.0, 256.0]).astype(DType.BF16.numpy)
    (result,) = all_operations()["gelu"].evaluate([x], {"tanh": False})
    wide = all_operations()["gelu"].evaluate([x.astype(np.float32)], {"tanh": False})[0]
    assert result.dtype == DType.BF16.numpy
    np.testing.assert_array_equal(result, wide.astype(DType.BF16.numpy))
