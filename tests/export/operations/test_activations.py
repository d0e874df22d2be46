from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType
from support.harness import check, lowered_operators, single

FLOATS = [DType.F32, DType.F64, DType.BF16]


def numbers(dtype: DType) -> Array:
    return np.concatenate(
        [np.linspace(-12, 12, 241), [-1e4, -800, -100, -30, 30, 100, 800, 1e4]]
    ).astype(dtype.numpy)


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


#: The definitions, one number at a time.
MEANING: dict[str, Callable[[float], float]] = {
    "sigmoid": logistic,
    "softplus": lambda x: x if x > 700 else math.log1p(math.exp(x)),
    "relu": lambda x: x if x > 0 else 0.0,
    "leaky-relu": lambda x: x if x > 0 else 0.01 * x,
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "silu": lambda x: x * logistic(x),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "hard-swish": lambda x: x * min(max(x + 3, 0), 6) / 6,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", MEANING)
def test_the_definitions(name: str, dtype: DType) -> None:
    x = numbers(dtype)
    # In f32 silu is x times a Sigmoid that is exact to 1.2e-7.
    absolute = 3e-6 if (name, dtype) == ("silu", DType.F32) else None
    (result,) = check(name, [x], absolute=absolute)
    tolerance = {DType.F32: 1e-6, DType.F64: 1e-14, DType.BF16: 2.0**-8}[dtype]
    want = [MEANING[name](float(v)) for v in x]
    np.testing.assert_allclose(result.astype(float), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu_by_tanh(dtype: DType) -> None:
    x = numbers(dtype)
    (result,) = check("gelu", [x], tanh=True)
    (exact,) = check("gelu", [x])
    want = [
        0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
        for v in x.astype(float)
    ]
    tolerance = {DType.F32: 1e-6, DType.F64: 1e-14, DType.BF16: 2.0**-8}[dtype]
    np.testing.assert_allclose(result.astype(float), want, rtol=tolerance, atol=tolerance)
    assert (result != exact).any()


@pytest.mark.parametrize("tanh", [False, True])
def test_gelu_is_one_operator_in_the_fused_profile(tanh: bool) -> None:
    x = numbers(DType.F32)
    graph, _ = single("gelu", [x], tanh=tanh)
    assert lowered_operators(graph, profile="fused", opset=23) == ["Gelu"]
    check("gelu", [x], tanh=tanh, profile="fused", opset=23)
    check("gelu", [numbers(DType.F64)], tanh=tanh, profile="fused", opset=23)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("slope", [0.0, 0.3, -1.0, 2.0])
def test_the_slope_of_leaky_relu(dtype: DType, slope: float) -> None:
    x = np.array([-4, -1, 0, 2]).astype(dtype.numpy)
    (result,) = check("leaky-relu", [x], slope=slope)
    np.testing.assert_allclose(
        result.astype(float), [-4 * slope, -slope, 0, 2], rtol=2.0**-8, atol=0
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [0.5, 2.0, -1.0])
def test_the_alpha_of_elu(dtype: DType, alpha: float) -> None:
    x = np.array([-np.inf, 0, 2]).astype(dtype.numpy)
    (result,) = check("elu", [x], alpha=alpha)
    assert result.astype(float).tolist() == [-alpha, 0, 2]


def test_elu_keeps_its_digits_near_zero_in_f64() -> None:
    check("elu", [np.array([-1e-12, -1e-5, -0.3])], relative=1e-14, absolute=0)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_neither_tail_overflows(dtype: DType) -> None:
    x = np.array([-np.inf, -3e38, -1e4, 1e4, 3e38, np.inf]).astype(dtype.numpy)
    assert check("sigmoid", [x])[0].tolist() == [0, 0, 0, 1, 1, 1]
    assert check("softplus", [x])[0].tolist() == [0, 0, 0, *x[3:].tolist()]
    for name in ("silu", "gelu", "hard-swish"):
        (result,) = check(name, [x])
        assert result[1:].tolist() == [0, 0, *x[3:].tolist()], name
        # 0 times infinity.
        assert np.isnan(result[0]), name


def test_softplus_keeps_its_digits_in_the_tail() -> None:
    for dtype, relative in ((np.float32, 1e-5), (np.float64, 1e-14)):
        x = np.array([-80, -30, -5, 0.1], dtype)
        check("softplus", [x], relative=relative, absolute=0)


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64])
def test_relu_of_integers(dtype: DType) -> None:
    limits = np.iinfo(dtype.numpy)
    (result,) = check("relu", [np.array([limits.min, -1, 0, 7, limits.max], dtype.numpy)])
    assert result.tolist() == [0, 0, 0, 7, limits.max]


@pytest.mark.parametrize("name", ["sigmoid", "silu"])
def test_f64_has_no_sigmoid_that_runtimes_fuse(name: str) -> None:
    graph, _ = single(name, [numbers(DType.F64)])
    assert "Sigmoid" not in lowered_operators(graph)
