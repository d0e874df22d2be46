from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType
from support.harness import check


def spread(dtype: DType, *scales: float) -> Array:
    """Numbers of both signs at several scales."""
    generator = np.random.default_rng(7)
    parts = [generator.normal(size=301) * scale for scale in scales]
    return np.concatenate(parts).astype(dtype.numpy)


#: What Python's own library gives, one number at a time.
MATH: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "expm1": math.expm1,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "tanh": math.tanh,
    "erf": math.erf,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
}


@pytest.mark.parametrize("name", MATH)
def test_f64_is_that_of_the_c_library(name: str) -> None:
    x = spread(DType.F64, 1e-10, 1e-2, 1, 10)
    (result,) = check(name, [x])
    np.testing.assert_allclose(result, [MATH[name](v) for v in x], rtol=2e-15)


@pytest.mark.parametrize(
    ("name", "relative"), [("exp", 1e-14), ("tan", 1e-14), ("erf", 1e-14), ("tanh", 1e-14)]
)
def test_f64_is_computed_in_f64(name: str, relative: float) -> None:
    check(name, [spread(DType.F64, 1e-20, 1e-3, 1, 5, 20)], relative=relative, absolute=0)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_nothing_cancels_near_zero(name: str, dtype: DType) -> None:
    relative = {DType.F32: 1e-6, DType.F64: 2e-15}[dtype]
    x = np.abs(spread(dtype, 1e-30, 1e-10, 1e-6, 1e-3, 0.3, 1, 10))
    for values in (x, -np.minimum(x, x.dtype.type(0.99))):
        check(name, [values], relative=relative, absolute=0)
    (result,) = check(name, [np.array([1e-10], dtype.numpy)], relative=relative, absolute=0)
    assert result[0] == pytest.approx(1e-10, rel=1e-6)


def test_tan_keeps_its_digits_beside_its_poles() -> None:
    poles = (np.arange(-50, 50) + 0.5) * math.pi
    x = np.concatenate([poles + offset for offset in (0, 1e-9, -1e-6, 1e-3)])
    (result,) = check("tan", [x], relative=1e-13, absolute=0)
    np.testing.assert_allclose(result, [math.tan(v) for v in x], rtol=1e-15)


def test_tan_of_large_angles() -> None:
    x = spread(DType.F64, 1e5, 2.0**20, 1e7, 1e12)
    check("tan", [x], relative=1e-9)


def test_round_takes_the_even_of_two() -> None:
    for dtype in (np.float32, np.float64):
        (result,) = check("round", [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], dtype)])
        assert result.tolist() == [-2, -2, 0, 0, 2, 2]


def test_the_ends_of_the_domains() -> None:
    x = np.array([-1, -0.0, np.inf])
    assert np.isnan(check("log", [x])[0][0])
    assert check("log", [x])[0].tolist()[1:] == [-np.inf, np.inf]
    assert check("rsqrt", [np.array([0.0, np.inf])])[0].tolist() == [np.inf, 0]
    assert check("log1p", [np.array([-1, np.inf])])[0].tolist() == [-np.inf, np.inf]
    assert check("expm1", [np.array([-np.inf, np.inf])])[0].tolist() == [-1, np.inf]
    assert check("erf", [np.array([-np.inf, np.inf])])[0].tolist() == [-1, 1]
