"""erfc and lgamma: their digits at every scale, and their ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

from support.harness import check


def test_erfc_keeps_its_digits_in_the_tail() -> None:
    x = np.concatenate([np.linspace(-7, 26.5, 700), [0.46875, 0.4687500001, 4.0, 4.0000001]])
    (result,) = check("erfc", [x], relative=5e-14, absolute=0)
    np.testing.assert_allclose(result, [math.erfc(v) for v in x], 1e-15)
    # In f32 numbers below 1e-38 have fewer digits.
    check("erfc", [np.linspace(-4, 9.1, 700).astype(np.float32)], relative=3e-6, absolute=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_erfc(dtype: type) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0, 100, -100], dtype)
    (result,) = check("erfc", [x], [0])
    np.testing.assert_array_equal(result, [0, 2, np.nan, 1, 0, 2])


def test_lgamma_is_that_of_the_c_library() -> None:
    generator = np.random.default_rng(1)
    x = np.concatenate([generator.normal(size=200) * s for s in (1e-200, 1e-5, 0.3, 1, 10, 150)])
    x = np.concatenate([x, abs(x) * 1e9, [1 - 1e-9, 1, 1 + 1e-9, 2 - 1e-9, 2, 2 + 1e-9, 0.5]])
    (result,) = check("lgamma", [x], relative=1e-13, absolute=1e-13)
    np.testing.assert_allclose(result, [math.lgamma(v) for v in x], 1e-15)
    with np.errstate(over="ignore"):
        check("lgamma", [x.astype(np.float32)], relative=1e-6, absolute=1e-7)


def test_lgamma_of_whole_numbers_is_that_of_factorials() -> None:
    (result,) = check("lgamma", [np.arange(1.0, 20.0)])
    np.testing.assert_allclose(np.exp(result), [math.factorial(n) for n in range(19)], 1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_lgamma(dtype: type) -> None:
    x = np.array([0.0, -0.0, -1, -2, -50, np.inf, -np.inf, np.nan], dtype)
    (result,) = check("lgamma", [x], [0])
    np.testing.assert_array_equal(result, [np.inf] * 7 + [np.nan])
