"""Elementwise operations in JAX over the whole range of their operands."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from sexpgpu.export.graph.reference import evaluate_node
from sexpgpu.export.graph.types import Array, DType
from sexpgpu.tools.train.lowering.compute import compute_node
from support.differentiated import gradients
from support.elementwise import arity, arrange, cases, edges
from support.harness import RELATIVE, single

#: So many units in the last place of the operand, not of the result, since something cancels:
#: 1 + erf as the reference has it, x/6 + 1/2, and near the zeros of lgamma XLA's sum of logarithms.
CANCELS = {"gelu": 4, "hard-swish": 4, "lgamma": 500}
#: A subnormal number is 0 to XLA on the CPU; here it is a factor, and the other is up to 100.
FLUSHED = {"silu": 100}
#: Which of 0.0 and -0.0 is the larger is open.
OPEN_ZERO = {"minimum", "maximum"}


def in_jax(name: str, arrays: list[Array], **attributes: Any) -> tuple[Array, Array]:
    """The operation's result by JAX, and by the reference."""
    node = single(name, arrays, **attributes)[1]
    function = jax.jit(partial(compute_node, node, batch=1, key=jax.random.key(0)))
    return np.asarray(function(arrays)[0]), evaluate_node(node, arrays, 1)[0]


def spread(generator: np.random.Generator, dtype: DType, count: int = 4000) -> Array:
    """Numbers of every size that the dtype has."""
    if dtype is DType.BOOL:
        return np.asarray(generator.random(count) < 0.5)
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        small = generator.integers(-70, 70, count)
        return np.concatenate(
            [small, generator.integers(limits.min, limits.max, count, endpoint=True)]
        ).astype(dtype.numpy)
    size = np.exp(generator.uniform(-80, 80, count)) * generator.choice([-1, 1], count)
    whole = generator.integers(-40, 40, count) / 4
    parts = [generator.normal(0, 1, count), generator.normal(0, 20, count), size, whole]
    return np.concatenate(parts).astype(dtype.numpy)


def attributes_of(name: str) -> list[dict[str, Any]]:
    if name == "cast":
        return [{"dtype": dtype} for dtype in DType]
    if name == "clip":
        return [{"low": -1.0, "high": 3.0}, {"low": None, "high": 1e30}, {"low": -np.inf}]
    return [{}, {"tanh": True}] if name == "gelu" else [{}]


@pytest.mark.parametrize(("name", "dtype"), cases())
def test_values_are_those_of_the_reference_over_the_whole_range(name: str, dtype: DType) -> None:
    generator = np.random.default_rng(0)
    count = arity(name)
    pairs = np.meshgrid(*[edges(dtype)] * count, indexing="ij")
    numbers = spread(generator, dtype)
    arrays = [np.concatenate([generator.permutation(numbers), p.ravel()]) for p in pairs]
    arrays = arrange(name, arrays, np.asarray(generator.random(arrays[0].size) < 0.5))
    for attributes in attributes_of(name):
        found, want = in_jax(name, arrays, **attributes)
        assert (found.dtype, found.shape) == (want.dtype, want.shape)
        wanted = DType.of(want)
        if not wanted.is_float:
            np.testing.assert_array_equal(found, want)
            continue
        allowed = _allowed(name, arrays[-1], wanted)
        a, b = found.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        with np.errstate(invalid="ignore"):
            error = np.where(a == b, 0, abs(a - b)) - RELATIVE[wanted] * abs(b)
        worst = int(np.nanargmax(np.where(np.isnan(a), -np.inf, error - allowed)))
        assert not (error > allowed).any(), (
            f"{name} {attributes} of {[x[worst] for x in arrays]}: {found[worst]}, {want[worst]}"
        )
        if name not in OPEN_ZERO:
            zero = (a == 0) & (b == 0)
            np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]))


def _allowed(name: str, operand: Array, result: DType) -> Any:
    """The absolute error: results that are subnormal are 0, and what the operation itself loses."""
    limits = np.finfo(np.float64 if result is DType.F64 else np.float32)
    least = float(limits.tiny) * FLUSHED.get(name, 1)
    size = np.where(np.isfinite(operand), abs(operand), 0).astype(np.float64)
    return least + CANCELS.get(name, 0) * float(limits.eps) * size


def test_a_subnormal_number_is_zero_to_arithmetic_and_moved_as_it_is() -> None:
    """XLA computes so on the CPU, and nothing that a program says can change it; the reference
    does not.  Should this fail, XLA keeps subnormals, and the tolerances here may go."""
    for dtype in (DType.F32, DType.F64):
        least = np.asarray([np.finfo(dtype.numpy).tiny / 4], dtype.numpy)
        for name, other in (("+", least), ("*", np.ones_like(least))):
            found, want = in_jax(name, [least, other])
            assert found == 0 < want
        assert in_jax("log", [least])[0] == -np.inf
        for name in ("neg", "abs"):
            found, want = in_jax(name, [least])
            assert found == want != 0


@pytest.mark.parametrize("tanh", [False, True])
def test_gelu_has_all_its_digits_far_below_zero(tanh: bool) -> None:
    """The reference loses them where 1 + erf cancels; this is the formula in more digits."""
    x = np.linspace(-8, -1, 200).astype(np.float32)
    found = in_jax("gelu", [x], tanh=tanh)[0]
    for number, result in zip(x.astype(np.float64), found, strict=True):
        if tanh:
            gate = 2 * math.sqrt(2 / math.pi) * (number + 0.044715 * number**3)
            want = number / (1 + math.exp(-gate))
        else:
            want = number * math.erfc(-number / math.sqrt(2)) / 2
        assert result == pytest.approx(want, rel=3e-5)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_no_gradient_goes_back_through_stop_gradient(dtype: DType) -> None:
    x = edges(dtype)
    (gradient,) = gradients("stop-gradient", [x])
    np.testing.assert_array_equal(gradient, np.zeros_like(x))
