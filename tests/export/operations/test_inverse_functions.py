"""The inverse functions of the circle and those of the hyperbola: digits, ends and quadrants."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType
from support.harness import check, error_of

#: What Python's own library gives, one number at a time, and the scales at which it is defined.
MATH: dict[str, tuple[Callable[[float], float], tuple[float, ...]]] = {
    "asin": (math.asin, (1e-20, 1e-5, 0.3)),
    "acos": (math.acos, (1e-20, 1e-5, 0.3)),
    "atan": (math.atan, (1e-20, 1e-5, 0.3, 1, 3, 1e5, 1e200)),
    "sinh": (math.sinh, (1e-20, 1e-5, 0.3, 1, 10, 150)),
    "cosh": (math.cosh, (1e-20, 1e-5, 0.3, 1, 10, 150)),
    "asinh": (math.asinh, (1e-20, 1e-5, 0.3, 1, 10, 1e9, 1e200)),
    "acosh": (math.acosh, (1, 10, 1e9, 1e200)),
    "atanh": (math.atanh, (1e-20, 1e-5, 0.3)),
}


def points(name: str, dtype: DType) -> Array:
    """Numbers at several scales, of the domain."""
    generator = np.random.default_rng(7)
    x = np.concatenate([generator.normal(size=200) * scale for scale in MATH[name][1]])
    if name in ("asin", "acos", "atanh"):
        x = np.append(x[abs(x) < 1], [1 - 1e-9, -1 + 1e-9, 0.999, -0.999])
    if name == "acosh":
        x = np.append(1 + abs(x), [1 + 1e-9, 1.0])
    return x.astype(dtype.numpy)


@pytest.mark.parametrize("name", MATH)
def test_f64_is_that_of_the_c_library(name: str) -> None:
    x = points(name, DType.F64)
    (result,) = check(name, [x], relative=3e-15, absolute=0)
    np.testing.assert_allclose(result, [MATH[name][0](v) for v in x], rtol=1e-15)


@pytest.mark.parametrize("name", MATH)
def test_f32_and_bf16(name: str) -> None:
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for dtype in (DType.F32, DType.BF16):
            x = points(name, dtype)
            check(name, [x[np.isfinite(x)]], [0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_domains(dtype: type) -> None:
    ends = np.array([1, -1, 1.5, -1.5, np.inf, -np.inf, np.nan, 0.0, -0.0, 800, -800], dtype)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for name in MATH:
            (result,) = check(name, [ends])
            assert np.isnan(result[6])
        assert np.isnan(check("acosh", [-ends[:5]])[0][[0, 2, 4]]).all()
    assert np.isinf(check("atanh", [ends[:2]])[0]).all()
    assert np.isnan(check("asin", [ends[2:6]])[0]).all()


def test_sinh_and_cosh_overflow_when_they_must() -> None:
    x = np.array([709.9, 710.4, 710.5])
    with np.errstate(over="ignore"):
        for name in ("sinh", "cosh"):
            (result,) = check(name, [x], relative=1e-13)
            assert np.isfinite(result).tolist() == [True, True, False]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atan2_in_every_quadrant(dtype: type) -> None:
    ends = [0.0, -0.0, 1.0, -1.0, 3.0, -1e-30, 1e30, np.inf, -np.inf, np.nan]
    y, x = (np.array(v, dtype) for v in zip(*itertools.product(ends, ends), strict=True))
    (result,) = check("atan2", [y, x], [0, 0])
    np.testing.assert_allclose(
        result, [math.atan2(*pair) for pair in zip(y, x, strict=True)], 1e-6, 1e-40
    )


def test_atan2_keeps_its_digits() -> None:
    generator = np.random.default_rng(2)
    y, x = (generator.normal(size=(500, 1)) * 10.0 ** generator.integers(-9, 9, 5) for _ in "yx")
    (result,) = check("atan2", [y, x[:, :1]], relative=1e-15, absolute=0)
    assert result.shape == (500, 5)
    check("atan2", [y.astype(np.float32), x.astype(np.float32)], relative=1e-6, absolute=0)


def test_angles_of_whole_numbers_are_refused() -> None:
    error_of("E-DTYPE-002", "atan", [np.array([1])])
    error_of("E-DTYPE-002", "atan2", [np.array([1]), np.array([1])])
