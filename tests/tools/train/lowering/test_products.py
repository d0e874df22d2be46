"""Products of f32, and of operands rounded to bf16, whose gradients are such products too."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.tools.train.lowering.products import multiply
from support.differentiated import normal, rounded


@pytest.mark.parametrize(
    "words",
    [("ik", "kj", "ij"), ("bik", "kj", "bij"), ("bhqd", "bhkd", "bhqk"), ("ab", "c", "cab")],
)
@pytest.mark.parametrize("is_rounded", [False, True])
def test_a_product_and_its_gradients(words: tuple[str, str, str], is_rounded: bool) -> None:
    left, right, result = words
    sizes = dict(zip("abcdhijkq", range(2, 11), strict=True))
    a, b, g = (normal(*(sizes[c] for c in word), seed=seed) for seed, word in enumerate(words))

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return multiply(a, left, b, right, result, rounded=is_rounded)

    y, pull = jax.vjp(jax.jit(product), jnp.asarray(a), jnp.asarray(b))
    of_a, of_b = pull(jnp.asarray(g))
    assert {y.dtype, of_a.dtype, of_b.dtype} == {jnp.dtype(jnp.float32)}
    if is_rounded:
        a, b, g = map(rounded, (a, b, g))
    for found, equation, pair in (
        (y, f"{left},{right}->{result}", (a, b)),
        (of_a, f"{result},{right}->{left}", (g, b)),
        (of_b, f"{result},{left}->{right}", (g, a)),
    ):
        want = np.einsum(equation, *(x.astype(np.float64) for x in pair))
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_rounded_operands_are_summed_in_f32() -> None:
    """In bf16 a sum of ones ends at 256."""
    ones = jnp.ones((1, 5000), jnp.float32)
    y = jax.jit(lambda a, b: multiply(a, "ik", b, "jk", "ij", rounded=True))(ones, ones)
    assert float(y[0, 0]) == 5000


def test_a_gradient_summed_over_records_is_summed_in_f32() -> None:
    x, w = jnp.ones((5000, 1), jnp.float32), jnp.ones((1, 1), jnp.float32)
    gradient = jax.jit(jax.grad(lambda w: multiply(x, "ik", w, "kj", "ij", rounded=True).sum()))(w)
    assert gradient.dtype == jnp.float32
    assert float(gradient[0, 0]) == 5000


def test_on_a_gpu_the_compiler_is_given_products_of_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the gradients as well."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    x, w = jnp.ones((4, 3), jnp.float32), jnp.ones((3, 2), jnp.float32)

    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return (multiply(x, "ik", w, "kj", "ij", rounded=True) ** 2).sum()

    text = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(x, w).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert len(products) == 3
    assert all(line.count("bf16>") == 2 and "f32>" in line for line in products), products


def test_gradients_of_what_is_transposed_or_summed_over_two_axes() -> None:
    """XLA's CPU has no product of bf16 for the layouts that these come to."""
    x, w = jnp.asarray(normal(5, 3, 6)), jnp.asarray(normal(8, 6, seed=1))

    def loss(w: jax.Array) -> jax.Array:
        return (multiply(x, "tbi", w.T, "ig", "tbg", rounded=True) ** 2).sum() / 2

    y = rounded(normal(5, 3, 6)) @ rounded(normal(8, 6, seed=1)).T
    want = np.einsum("tbg,tbi->gi", rounded(y.astype(np.float32)), rounded(normal(5, 3, 6)))
    # A number that lies between two of bf16 may be rounded to either.
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(w), want, rtol=1e-2, atol=2e-2)


def test_f32_is_multiplied_as_f32_on_every_device() -> None:
    x = jnp.ones((4, 4), jnp.float32)
    gradient = jax.grad(lambda x: multiply(x, "ik", x, "kj", "ij", rounded=False).sum())
    text = jax.jit(gradient).lower(x).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products
    assert all("HIGHEST" in line for line in products), products
