"""Products of matrices in JAX where the samples do not go: gradients in bf16, longer sums."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest

from support.differentiated import apply, gradients, node_of, normal, reference, rounded
from support.harness import assert_close


def test_the_gradients_of_a_product_in_bf16_are_f32_of_rounded_operands() -> None:
    a, b, g = normal(5, 4, 3), normal(3, 6, seed=1), normal(5, 4, 6, seed=2)
    of_a, of_b = gradients("matmul", [a, b], [g], precision="bf16")
    assert of_a.dtype == of_b.dtype == np.float32
    a, b, g = map(rounded, (a, b, g))
    np.testing.assert_allclose(of_a, g @ b.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_b, np.einsum("bij,bik->kj", g, a), rtol=1e-5, atol=1e-5)


EINSUMS = ["ij,jk->ik", "ij,kl->il"]


@pytest.mark.parametrize("equation", EINSUMS)
def test_bf16_gives_what_f32_gives(equation: str) -> None:
    inputs = [normal(8, 8, seed=seed, dtype=ml_dtypes.bfloat16) for seed in (0, 1)]
    found = jax.jit(lambda *x: apply("einsum", x, equation=equation)[0])(*inputs)
    assert_close(np.asarray(found), reference("einsum", inputs, equation=equation)[0])


@pytest.mark.parametrize("equation", EINSUMS)
def test_on_a_gpu_bf16_is_multiplied_as_bf16(
    equation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what was summed before, which is no bf16 any more."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    inputs = [normal(8, 8, seed=seed, dtype=ml_dtypes.bfloat16) for seed in (0, 1)]
    text = jax.jit(lambda *x: apply("einsum", x, equation=equation)[0]).lower(*inputs).as_text()
    (product,) = (line for line in text.splitlines() if "dot_general" in line)
    assert product.count("bf16>") == (2 if equation == EINSUMS[0] else 0), product


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)),
        ((3,), (2, 1, 3, 4)),
        ((2, 1, 5, 3), (3,)),
        ((1, 5, 3), (4, 1, 3, 2)),
        ((2, 1, 5, 3), (1, 3, 3, 2)),
        ((1, 1, 5, 3), (1, 3, 2)),
        ((5, 3), (1, 0, 3, 2)),
    ],
)
def test_every_way_to_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = normal(*left, dtype=np.float64), normal(*right, seed=1, dtype=np.float64)
    (found,) = jax.jit(lambda a, b: apply("matmul", [a, b]))(a, b)
    assert_close(np.asarray(found), np.asarray(a @ b), absolute=1e-12)
    assert [g.shape for g in gradients("matmul", [a, b])] == [left, right]


@pytest.mark.parametrize(
    "equation",
    ["...ij,...jk", "i...,i...->...", "aab,bc->c", "ab,ab,b->a", "ij,kl->", "ab,bc,cd->da"],
)
def test_equations(equation: str) -> None:
    words = equation.partition("->")[0].split(",")
    sizes = dict(zip("abcdijkl", (2, 3, 4, 5, 3, 4, 2, 3), strict=True))
    inputs = [
        normal(
            *(d for c in word.replace("...", ".") for d in ((2, 3) if c == "." else (sizes[c],))),
            seed=seed,
            dtype=np.float64,
        )
        for seed, word in enumerate(words)
    ]
    node = node_of("einsum", inputs, equation=equation)
    found = apply("einsum", inputs, equation=equation)[0]
    want = reference("einsum", inputs, equation=equation)[0]
    assert found.shape == node.result_types[0].shape
    assert_close(np.asarray(found), want, absolute=1e-12)
