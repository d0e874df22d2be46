from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType
from support.harness import check, error_of

INTEGERS = [DType.I32, DType.I64]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["+", "-", "*"])
def test_integers_wrap_around(name: str, dtype: DType) -> None:
    limits = np.iinfo(dtype.numpy)
    numbers = [limits.min, limits.max, -1, 3, 2]
    a, b = (np.array(numbers, dtype.numpy)[:, None], np.array(numbers, dtype.numpy))
    (result,) = check(name, [a, b])
    exact = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[name]
    modulus = 2 ** (8 * dtype.itemsize)
    for i, x in enumerate(numbers):
        for j, y in enumerate(numbers):
            assert (int(result[i, j]) - exact(int(x), int(y))) % modulus == 0


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["neg", "abs"])
def test_the_least_integer_has_no_opposite(name: str, dtype: DType) -> None:
    least = np.array([np.iinfo(dtype.numpy).min], dtype.numpy)
    (result,) = check(name, [least])
    assert result[0] == least[0]


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_nan_wins_from_either_side(name: str) -> None:
    a = np.array([np.nan, 1, np.nan, np.inf], np.float32)
    b = np.array([1, np.nan, np.nan, np.nan], np.float32)
    (result,) = check(name, [a, b])
    assert np.isnan(result).all()


def test_sign_keeps_nan() -> None:
    (result,) = check("sign", [np.array([np.nan, -np.inf, -0.0, 3], np.float64)])
    assert np.isnan(result[0])
    assert result[1:].tolist() == [-1, 0, 1]


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [
        (None, None, [-5, 0, 5]),
        (None, 1, [-5, 0, 1]),
        (-1.0, None, [-1, 0, 5]),
        (2, 2, [2, 2, 2]),
        (-math.inf, math.inf, [-5, 0, 5]),
        (1e30, 1e31, None),
    ],
)
@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL])
def test_clip_takes_one_bound_both_or_none(dtype: DType, low: Any, high: Any, want: Any) -> None:
    x = np.array([-5, 0, 5], dtype.numpy)
    (result,) = check("clip", [x], low=low, high=high)
    if want is None:
        bound = np.iinfo(dtype.numpy).max if dtype.is_integer else 1e30
        want = np.full(3, bound).astype(dtype.numpy).tolist()
    assert result.tolist() == want


@pytest.mark.parametrize("bounds", [{"low": 2, "high": 1}, {"low": math.nan}, {"high": math.nan}])
def test_clip_1_bounds_are_in_order_and_no_nan(bounds: dict[str, Any]) -> None:
    # clip 1
    error_of("E-VALUE-001", "clip", [np.ones(2, np.float32)], **bounds)


@pytest.mark.parametrize("x", [np.ones(2, np.int32), np.ones(2, np.int64)])
def test_clip_2_bounds_of_integers_are_whole(x: Array) -> None:
    # clip 2
    error = error_of("E-VALUE-001", "clip", [x], low=0.5)
    assert error.came == "0.5"
