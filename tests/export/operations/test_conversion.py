from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.types import DType
from support.arrays import OPSETS, SEEDS, batch_axis_of, random_array, shapes
from support.elementwise import edges
from support.harness import check, check_axis_rule, lowered_operators, single

FLOATS = [DType.F32, DType.F64, DType.BF16]
INTEGERS = [DType.I32, DType.I64]


@pytest.mark.parametrize("target", list(DType))
@pytest.mark.parametrize("source", list(DType))
@settings(max_examples=8)
@given(data=st.data())
def test_every_pair_of_dtypes(source: DType, target: DType, data: Any) -> None:
    shape = data.draw(shapes())
    x = random_array(data.draw(SEEDS), source, shape, special=data.draw(st.booleans()))
    axes = [batch_axis_of(data, shape)]
    check("cast", [x], axes, dtype=target, relative=0, absolute=0, opset=data.draw(OPSETS))


@pytest.mark.parametrize("target", list(DType))
@pytest.mark.parametrize("source", list(DType))
def test_the_edges_of_every_pair(source: DType, target: DType) -> None:
    check("cast", [edges(source)], dtype=target, relative=0, absolute=0)


def truncated(x: float, dtype: DType) -> int:
    # cast 1
    limits = np.iinfo(dtype.numpy)
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return int(limits.max if x > 0 else limits.min)
    return int(min(max(math.trunc(x), limits.min), limits.max))


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
def test_cast_1_floats_without_an_integer(source: DType, target: DType) -> None:
    # cast 1
    powers = np.array([2.0**31, 2.0**63]).astype(source.numpy)
    zero = source.numpy.type(0)
    around = [powers, np.nextafter(powers, zero), np.nextafter(powers, source.numpy.type(np.inf))]
    some = np.array([0.5, 1.9, 2.5, 1e10, 1e19, np.inf, np.nan, 2**31 - 1, 2**31 - 0.5])
    x = np.concatenate([*around, some.astype(source.numpy)])
    x = np.concatenate([x, -x])
    (result,) = check("cast", [x], dtype=target)
    assert result.tolist() == [truncated(float(v), target) for v in x]


def test_bf16_is_the_nearest_and_the_even_of_two() -> None:
    # One unit of bf16 is 2^-7 here: halves of it lie between 1 and 1 + 2^-7, and above.
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 1 + 2**-9], np.float32)
    (result,) = check("cast", [x], dtype=DType.BF16, relative=0, absolute=0)
    assert result.astype(float).tolist() == [1, 1 + 2**-6, 1 + 2**-7, 1]


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL])
def test_truth(dtype: DType) -> None:
    x = np.array([0, 1, 2, -1]).astype(dtype.numpy)
    assert check("cast", [x], dtype=DType.BOOL)[0].tolist() == [False, True, True, True]
    truth = np.array([False, True])
    assert check("cast", [truth], dtype=dtype)[0].astype(float).tolist() == [0, 1]


def test_nan_is_true_and_so_is_the_least_float() -> None:
    for dtype in (np.float32, np.float64):
        x = np.array([np.nan, np.finfo(dtype).smallest_subnormal, -0.0], dtype)
        assert check("cast", [x], dtype=DType.BOOL)[0].tolist() == [True, True, False]


def test_integers_keep_their_low_bits() -> None:
    x = np.array([2**32 + 5, 2**31, -(2**31) - 1, 2**63 - 1])
    (result,) = check("cast", [x], dtype=DType.I32)
    assert result.tolist() == [5, -(2**31), 2**31 - 1, -1]


def test_no_more_operators_than_needed() -> None:
    def operators(x: Any, dtype: DType) -> list[str]:
        return lowered_operators(single("cast", [x], dtype=dtype)[0])

    assert operators(np.ones(1, np.float32), DType.F32) == ["Identity"]
    assert operators(np.ones(1, np.float32), DType.BF16) == ["Cast"]
    assert operators(np.ones(1, DType.BF16.numpy), DType.F32) == ["Cast"]
    assert operators(np.ones(1, np.int64), DType.F64) == ["Cast"]


@pytest.mark.parametrize("target", list(DType))
def test_positions_stay_apart(target: DType) -> None:
    assert check_axis_rule("cast", [random_array(0, DType.F32, (3, 4))], dtype=target) == 2
