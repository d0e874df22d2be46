"""Attention in JAX: queries that see nothing, shared heads, products in bf16."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from support.differentiated import apply, gradients, normal, reference
from support.harness import assert_close

SHAPES = (2, 4, 5, 4), (2, 2, 6, 4), (2, 2, 6, 3)


def operands(dtype: Any = np.float64) -> list[Any]:
    return [normal(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(SHAPES)]


def test_a_query_that_sees_nothing_gives_0_and_has_no_gradient() -> None:
    mask = np.ones((2, 1, 5, 6), bool)
    mask[0, 0, 2] = False
    inputs = [*operands(), mask]
    found = np.asarray(apply("attention", inputs, given=("mask",))[0])
    np.testing.assert_array_equal(found[0, :, 2], 0)
    of_q, of_k, of_v = gradients("attention", inputs, given=("mask",))
    np.testing.assert_array_equal(of_q[0, :, 2], 0)
    assert np.isfinite(of_q).all()
    assert np.isfinite(of_k).all()
    assert np.isfinite(of_v).all()
    assert np.all(of_q[1] != 0)


def test_queries_before_the_first_key_see_nothing() -> None:
    q, k, v = operands()
    inputs = [q, k[:, :, :3], v[:, :, :3]]
    found = np.asarray(apply("attention", inputs, causal=True)[0])
    np.testing.assert_array_equal(found[:, :, :2], 0)
    assert all(np.isfinite(g).all() for g in gradients("attention", inputs, causal=True))


def test_no_keys() -> None:
    q, k, v = operands()
    inputs = [q, k[:, :, :0], v[:, :, :0]]
    found = np.asarray(apply("attention", inputs)[0])
    assert_close(found, reference("attention", inputs)[0])
    assert not any(np.any(g) for g in gradients("attention", inputs))


def test_heads_that_share_keys_are_not_copied() -> None:
    q, k, v = operands()
    apart = [q, np.repeat(k, 2, 1), np.repeat(v, 2, 1)]
    of_q, of_k, of_v = gradients("attention", [q, k, v], causal=True)
    want_q, want_k, want_v = gradients("attention", apart, causal=True)
    np.testing.assert_allclose(of_q, want_q, rtol=1e-10, atol=1e-12)
    for found, want in ((of_k, want_k), (of_v, want_v)):
        summed = want.reshape(2, 2, 2, *want.shape[2:]).sum(2)
        np.testing.assert_allclose(found, summed, rtol=1e-10, atol=1e-12)


def test_a_bias_of_minus_infinity_hides_a_key() -> None:
    bias = normal(5, 6, dtype=np.float64)
    bias[:, 3] = -np.inf
    bias[1] = -np.inf
    inputs = [*operands(), bias]
    found = np.asarray(jax.jit(lambda *x: apply("attention", x, given=("bias",))[0])(*inputs))
    assert_close(found, reference("attention", inputs, given=("bias",))[0], absolute=1e-12)
    assert all(np.isfinite(g).all() for g in gradients("attention", inputs, given=("bias",)))


@pytest.mark.parametrize("attributes", [{}, {"causal": True, "softcap": 3.0}])
def test_the_gradients_in_bf16_are_f32_and_near(attributes: dict[str, Any]) -> None:
    inputs = operands(np.float32)
    exact = gradients("attention", inputs, **attributes)
    found = gradients("attention", inputs, precision="bf16", **attributes)
    for near, want in zip(found, exact, strict=True):
        assert near.dtype == np.float32
        assert np.any(near != want)
        np.testing.assert_allclose(near, want, atol=0.02 * np.abs(want).max())


def test_no_table_of_places_stands_in_the_program() -> None:
    inputs = [normal(1, 1, 512, 4, seed=seed) for seed in range(3)]
    program = jax.jit(lambda *x: apply("attention", x, causal=True)[0])
    assert len(program.lower(*inputs).as_text()) < 20_000
