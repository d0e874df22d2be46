"""Tests of the positions of the largest and smallest elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import DType
from support.arrays import OPSETS, SEEDS, batch_axis_of, random_array, shape_and_axis
from support.harness import check, check_axis_rule, error_of

NUMBERS = st.sampled_from([DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64])


def test_both_against_onnx_of_a_long_axis() -> None:
    x = random_array(0, DType.F32, (3, 1000), special=True)
    for name in ("argmax", "argmin"):
        check(name, [x])
        check(name, [np.nan_to_num(x)])


@given(
    shape_and_axis(least=1),
    st.sampled_from(["argmax", "argmin"]),
    st.booleans(),
    st.booleans(),
    NUMBERS,
    OPSETS,
    SEEDS,
    st.data(),
)
def test_position_against_onnx(
    pair: tuple[tuple[int, ...], int],
    name: str,
    keep: bool,
    special: bool,
    dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    shape, axis = pair
    x = random_array(seed, dtype, shape, special=special)
    batch = batch_axis_of(data, shape)
    (result,) = check(name, [x], [batch], axis=axis, keep=keep, opset=opset)
    # The meaning is NumPy's: the first of the extremes, and the first NaN where there is one.
    wide = x.astype(np.float64) if dtype is DType.BF16 else x
    want = getattr(np, name)(wide, axis=axis, keepdims=keep)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, want)
    assert check_axis_rule(name, [x], axis=axis, keep=keep) == len(shape) - 1


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16])
def test_infinity_and_the_largest_number_are_equal(dtype: DType) -> None:
    bound = np.float32(3.4028235e38) if dtype is not DType.F64 else np.finfo(np.float64).max
    x = np.array([0, bound, np.inf]).astype(dtype.numpy)
    # To bf16 the bound of f32 is infinity, so that position 1 comes first either way.
    assert check("argmax", [x])[0] == 1
    assert check("argmin", [-x])[0] == 1


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_refuses(name: str) -> None:
    x = np.zeros((2, 0), np.float32)
    error_of("E-VALUE-001", name, [x], axis=2)  # argmax 1, argmin 1
    error_of("E-VALUE-001", name, [x[:, 0:0]], axis=1)  # argmax 2, argmin 2
    error_of("E-VALUE-001", name, [np.float32(1).reshape(())])  # argmax 1, argmin 1
    assert check(name, [x], axis=0)[0].shape == (0,)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_are_i32(name: str) -> None:
    x = np.broadcast_to(np.float32(0), (2**31,))
    error_of("E-VALUE-001", name, [x])  # argmax 1, argmin 1
