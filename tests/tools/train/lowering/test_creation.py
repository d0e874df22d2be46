"""Tensors out of numbers in JAX, where sizes and numbers are at their ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType
from support.differentiated import apply, reference
from support.harness import assert_close


def check(name: str, *inputs: Array, **attributes: Any) -> None:
    found = jax.jit(partial(apply, name, **attributes))(list(inputs))
    for a, b in zip(found, reference(name, inputs, **attributes), strict=True):
        assert_close(np.asarray(a), b, relative=0, absolute=0)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL])
@pytest.mark.parametrize("length", [0, 1, 300, 70_000])
def test_iota_is_exact_however_long(dtype: DType, length: int) -> None:
    check("iota", length=(length,), dtype=dtype)
    check("iota", length=(length,), start=-5, step=-3, dtype=dtype)
    if dtype.is_float:
        # A power of two times a whole number is exact, so that no fused step rounds otherwise.
        check("iota", length=(length,), start=0.5, step=2.0**-20, dtype=dtype)


def test_iota_counts_past_i32() -> None:
    check("iota", length=(70_000,), start=2**40, step=2**33, dtype=DType.I64)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16])
def test_full_rounds_as_the_dtype_does(dtype: DType) -> None:
    for value in (0.1, 1 + 2.0**-9, -0.0, float("nan"), float("inf"), 1e-30):
        check("full", shape=(2,), value=value, dtype=dtype)
    check("full", shape=(2, 0), value=1, dtype=dtype)


def test_full_has_every_whole_number() -> None:
    check("full", shape=(), value=2**62, dtype=DType.I64)
    check("full", shape=(2,), value=-(2**31), dtype=DType.I32)


@pytest.mark.parametrize("offset", [0, 1, -2, 10**30, -(10**30)])
def test_eye_of_any_offset(offset: int) -> None:
    for rows, columns in ((3, 4), (4, 2), (0, 3), (3, 0)):
        for dtype in (DType.F32, DType.BOOL, DType.BF16):
            check("eye", rows=rows, columns=columns, offset=offset, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_one_hot_of_indices_far_out_of_range(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    indices = np.array([[limits.min, -4, -3, -1], [0, 2, 3, limits.max]], dtype)
    for axis in (0, 1, -1):
        check("one-hot", indices, depth=3, axis=axis, dtype=DType.I32)
    check("one-hot", indices[0, 0], depth=3)
    check("one-hot", indices[:, :0], depth=3, axis=0)


def test_one_hot_tells_indices_apart_that_are_one_in_i32() -> None:
    check("one-hot", np.array([2**32, 2**32 + 1, 1, -(2**32)]), depth=4)
