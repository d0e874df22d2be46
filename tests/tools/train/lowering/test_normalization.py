"""Normalisation in JAX: rows that are NaN, and what their gradients are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.differentiated import apply, gradients, normal, reference


@pytest.mark.parametrize("name", ["softmax", "log-softmax"])
def test_rows_without_a_distribution_are_nan(name: str) -> None:
    x = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf], [-np.inf, 1.0]])
    found = np.asarray(jax.jit(lambda x: apply(name, [x])[0])(x))
    np.testing.assert_array_equal(np.isnan(found).all(1), [True, True, True, False])
    np.testing.assert_array_equal(found, reference(name, [x])[0])


@pytest.mark.parametrize("name", ["softmax", "log-softmax"])
def test_rows_that_nobody_chose_have_no_gradient(name: str) -> None:
    x = np.array([[-np.inf, -np.inf, -np.inf], [0.0, 1.0, 3.0]])
    asked = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, -1.0]])
    (found,) = gradients(name, [x], [asked])
    np.testing.assert_array_equal(found[0], 0)
    (alone,) = gradients(name, [x[1:]], [asked[1:]])
    np.testing.assert_array_equal(found[1:], alone)


@pytest.mark.parametrize("name", ["softmax", "log-softmax"])
def test_gradients_are_those_that_jax_finds(name: str) -> None:
    x, g = normal(3, 4, 5, dtype=np.float64), normal(3, 4, 5, seed=1, dtype=np.float64)
    plain = {"softmax": jax.nn.softmax, "log-softmax": jax.nn.log_softmax}[name]
    for axis in (0, 1, -1):
        (want,) = jax.vjp(lambda x: plain(x, axis=axis), jnp.asarray(x))[1](jnp.asarray(g))  # noqa: B023
        (found,) = gradients(name, [x], [g], axis=axis)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-14)


def test_softmax_is_differentiated_twice() -> None:
    x = jnp.asarray([0.1, 0.7, -0.3])

    def by_rule(x: jax.Array) -> jax.Array:
        return apply("softmax", [x])[0]

    found = jax.jacrev(jax.grad(lambda x: (by_rule(x) ** 2).sum()))(x)
    want = jax.jacrev(jax.grad(lambda x: (jax.nn.softmax(x) ** 2).sum()))(x)
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-7)


def test_constant_rows_without_epsilon_are_nan() -> None:
    x = np.ones((1, 4), np.float32)
    for name in ("layer-normalize", "rms-normalize"):
        found = np.asarray(apply(name, [x * 0], epsilon=0.0)[0])
        np.testing.assert_array_equal(found, reference(name, [x * 0], epsilon=0.0)[0])


def test_no_rows() -> None:
    x = np.ones((0, 4), np.float32)
    scale = np.ones(4, np.float32)
    for name in ("layer-normalize", "rms-normalize"):
        found = apply(name, [x, scale], given=("scale",))[0]
        assert found.shape == (0, 4)
        assert not np.any(gradients(name, [x, scale], given=("scale",))[1])
