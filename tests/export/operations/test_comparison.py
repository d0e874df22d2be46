from __future__ import annotations

import operator

import numpy as np
import pytest

from sexpgpu.export.graph.types import DType
from support.elementwise import edges
from support.harness import check, error_of

COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL])
@pytest.mark.parametrize("name", COMPARISONS)
def test_as_python_compares(name: str, dtype: DType) -> None:
    x = edges(dtype)
    (result,) = check(name, [x[:, None], x])
    numbers = [v.item() if dtype is not DType.BF16 else float(v) for v in x]
    assert result.tolist() == [[COMPARISONS[name](a, b) for b in numbers] for a in numbers]


@pytest.mark.parametrize("name", COMPARISONS)
def test_nan_is_equal_to_nothing_and_in_no_order(name: str) -> None:
    nan, x = np.array([np.nan], np.float32), np.array([np.nan, 0, np.inf], np.float32)
    for inputs in ([nan, x], [x, nan]):
        assert check(name, inputs)[0].tolist() == [name == "!="] * 3


def test_large_integers_differ_in_their_last_bit() -> None:
    a, b = np.array([2**53 + 1]), np.array([2**53])
    assert check("=", [a, b])[0].tolist() == [False]
    assert check(">", [a, b])[0].tolist() == [True]


@pytest.mark.parametrize("name", ["<", "<=", ">", ">="])
def test_booleans_have_no_order(name: str) -> None:
    error_of("E-DTYPE-002", name, [np.array([True])] * 2)


def test_what_is_finite() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e38, 0], np.float32)
    assert check("is-finite", [x])[0].tolist() == [False, False, False, True, True]
    assert check("is-nan", [x])[0].tolist() == [True, False, False, False, False]
    assert check("is-finite", [np.array([0, 2**62])])[0].tolist() == [True, True]
