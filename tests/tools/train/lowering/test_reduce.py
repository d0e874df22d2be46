"""Reductions in JAX: NaN, infinities, integers that wrap around, and gradients at the edges."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.differentiated import apply, gradients, normal, reference
from support.harness import assert_close

INF, NAN = math.inf, math.nan
FLOATS = [np.float32, np.float64, ml_dtypes.bfloat16]


def check(name: str, x: Array, **attributes: Any) -> None:
    (found,) = jax.jit(partial(apply, name, **attributes))([x])
    assert_close(np.asarray(found), reference(name, [x], **attributes)[0])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_wrap_around(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    generator = np.random.default_rng(0)
    x = generator.integers(limits.min, limits.max, (5, 7), dtype, endpoint=True) | 1
    for name in ("sum", "prod", "cumsum"):
        check(name, x)
        check(name, np.array([limits.min, limits.min, -1, 3], dtype))
    check("cumsum", x, axis=0, exclusive=True, reverse=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "logsumexp", "norm"])
def test_what_is_not_a_number_among_numbers(name: str, dtype: Any) -> None:
    rows = [
        [1, NAN, 2],
        [INF, 1, NAN],
        [NAN, NAN, NAN],
        [INF, -INF, 0],
        [INF, INF, 1],
        [-INF, -INF, -INF],
        [-INF, 2, 1],
        [0, -0.0, 0],
    ]
    check(name, np.array(rows, dtype), axis=(1,))
    check(name, np.array(rows, dtype).T, axis=(0,), keep=True)


@pytest.mark.parametrize("order", [1.0, 2.0, INF])
def test_norms_of_what_is_not_a_number(order: float) -> None:
    x = np.array([[NAN, 1, INF], [INF, -INF, 0], [0, 0, -0.0], [1e30, 1e30, 0]], np.float32)
    check("norm", x, axis=(1,), order=order)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "logsumexp", "norm"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_without_axes(name: str, dtype: Any) -> None:
    check(name, np.array(-1.5, dtype))
    check(name, np.array(-1.5, dtype), axis=(), keep=True)


@pytest.mark.parametrize("name", ["sum", "prod", "logsumexp", "norm"])
def test_elements_that_are_none(name: str) -> None:
    check(name, np.zeros((2, 0), np.float32), axis=(1,))
    check(name, np.zeros((0, 2), np.float32), axis=(1,))
    check(name, np.zeros((2, 0, 3), np.float64), axis=(0, 1), keep=True)
    (found,) = gradients(name, [np.zeros((2, 0))], axis=(1,))
    assert found.shape == (2, 0)


def test_bf16_is_summed_in_f32() -> None:
    x = np.ones((4000,), ml_dtypes.bfloat16)
    for name in ("sum", "cumsum", "norm"):
        check(name, x)
    check("mean", x * ml_dtypes.bfloat16(3))


def test_a_variance_far_from_zero() -> None:
    x = (normal(3, 50, dtype=np.float64) + 1e6).astype(np.float64)
    check("variance", x, axis=(1,))
    check("variance", x, axis=(1,), correction=1)
    check("variance", np.full((4,), 7.1, np.float32), correction=3)


def test_sums_of_nothing_yet() -> None:
    check("cumsum", np.zeros((2, 0), np.float32), exclusive=True)
    check("cumsum", np.zeros((0, 2), np.int32), exclusive=True, reverse=True)
    check("cumsum", np.array([[INF, 1, -INF, 2], [NAN, 1, 2, 3]]), exclusive=True)
    check("cumsum", np.array([[INF, 1, -INF, 2], [NAN, 1, 2, 3]]), reverse=True)


def test_the_gradient_of_a_product_with_zeros() -> None:
    x = np.array([[2.0, 3, 4], [2, 0, 4], [0, 0, 4]])
    (found,) = gradients("prod", [x], axis=(1,))
    np.testing.assert_array_equal(found, [[12, 8, 6], [0, 8, 0], [0, 0, 0]])
    (found,) = gradients("prod", [np.array([[1.0, 2], [0, 4]])])
    np.testing.assert_array_equal(found, [[0, 0], [8, 0]])


def test_the_second_gradient_of_a_product_with_zeros() -> None:
    found = jax.jacrev(jax.grad(lambda x: apply("prod", [x])[0]))(jnp.asarray([0.0, 0, 5]))
    np.testing.assert_array_equal(found, [[0, 5, 0], [5, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize(("name", "sign"), [("max", 1), ("min", -1)])
def test_equal_extremes_share_the_gradient(name: str, sign: int) -> None:
    x = sign * np.array([[1.0, 3, 3, 2], [5, 5, 5, 5], [0, 1, 2, 3]])
    (found,) = gradients(name, [x], axis=(1,))
    np.testing.assert_array_equal(found, [[0, 0.5, 0.5, 0], [0.25] * 4, [0, 0, 0, 1]])


def test_gradients_of_norms_at_zero_are_zero() -> None:
    x = np.array([[0.0, 0.0], [3.0, -4.0], [0.0, 2.0]])
    (found,) = gradients("norm", [x], axis=(1,))
    np.testing.assert_allclose(found, [[0, 0], [0.6, -0.8], [0, 1]])
    (found,) = gradients("norm", [x], axis=(1,), order=1.0)
    np.testing.assert_array_equal(found, [[0, 0], [1, -1], [0, 1]])
    (found,) = gradients("norm", [x], axis=(1,), order=INF)
    np.testing.assert_array_equal(found, [[0, 0], [0, -1], [0, 1]])


def test_the_gradient_of_logsumexp_is_the_softmax() -> None:
    x = np.array(
        [[0.0, 1000.0, 1000.0], [-INF, 1.0, 1.0], [-INF, -INF, -INF], [-2000, -2000, -1e9]]
    )
    (found,) = gradients("logsumexp", [x], axis=(1,))
    np.testing.assert_allclose(found, [[0, 0.5, 0.5], [0, 0.5, 0.5], [0, 0, 0], [0.5, 0.5, 0]])


@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "max", "min", "variance", "logsumexp", "norm"]
)
def test_rows_that_nobody_chose_have_no_gradient(name: str) -> None:
    x = np.array([[NAN, 1, 2], [INF, INF, 1], [0.5, 1, 2]])
    asked = np.array([0.0, 0, 1])
    (found,) = gradients(name, [x], [asked], axis=(1,))
    np.testing.assert_array_equal(found[:2], 0)
    np.testing.assert_array_equal(found[2:], gradients(name, [x[2:]], [asked[2:]], axis=(1,))[0])


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_gradient_of_a_running_sum_runs_the_other_way(exclusive: bool, reverse: bool) -> None:
    asked = normal(2, 5, dtype=np.float64)
    (found,) = gradients(
        "cumsum", [np.zeros((2, 5))], [asked], exclusive=exclusive, reverse=reverse
    )
    (want,) = reference("cumsum", [asked], exclusive=exclusive, reverse=not reverse)
    np.testing.assert_allclose(found, want, atol=1e-14)
