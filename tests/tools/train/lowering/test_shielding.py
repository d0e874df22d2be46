"""What nobody chose has no part in a gradient; what was chosen keeps its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.export.graph.types import DType
from sexpgpu.tools.train.lowering.compute import compute_node
from support.elementwise import ATTRIBUTES, arity, cases
from support.harness import single

FLOATING = [name for name, dtype in cases() if dtype is DType.F64 and name not in ("where", "cast")]


def apply(name: str, *arrays: Any, **attributes: Any) -> Any:
    """The operation, traced."""
    samples = [np.zeros(array.shape, array.dtype) for array in arrays]
    node = single(name, samples, **attributes)[1]
    return compute_node(node, list(arrays), 1, jax.random.key(0))[0]


def chosen(name: str, *arrays: Any) -> Any:
    """0 where the operation's result is not chosen, which is everywhere but in the first place."""
    result = apply(name, *arrays, **ATTRIBUTES.get(name, {}))
    if not jnp.issubdtype(result.dtype, jnp.floating):
        return jnp.zeros(())
    first = jnp.arange(result.size) == 0
    return apply("where", first, result, jnp.zeros_like(result)).sum()


@pytest.mark.parametrize("name", FLOATING)
def test_a_result_that_is_not_chosen_has_no_part_in_the_gradient(name: str) -> None:
    operands = arity(name)
    poles = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -1e300, -1.0])
    # Every two of the poles meet, after a first place at which every operation is smooth.
    arrays = [
        np.concatenate([[0.3 + 0.4 * i], pole.ravel()])
        for i, pole in enumerate(np.meshgrid(*[poles] * operands))
    ]
    gradients = jax.jit(jax.grad(chosen, argnums=tuple(range(1, operands + 1))), static_argnums=0)
    found, want = gradients(name, *arrays), gradients(name, *(array[:1] for array in arrays))
    for gradient, first in zip(found, want, strict=True):
        np.testing.assert_array_equal(gradient[1:], 0)
        # One element and several are compiled apart, and may be rounded otherwise.
        np.testing.assert_allclose(gradient[:1], first, rtol=1e-15)


def test_entropy_has_a_gradient_where_a_probability_is_zero() -> None:
    def entropy(p: Any) -> Any:
        logarithms = apply("*", p, apply("log", p))
        return -apply(
            "where", apply(">", p, jnp.zeros_like(p)), logarithms, jnp.zeros_like(p)
        ).sum()

    gradient = jax.grad(entropy)(jnp.asarray([0.5, 0.0, 0.5]))
    np.testing.assert_allclose(gradient, [np.log(2) - 1, 0, np.log(2) - 1])


def test_a_pole_that_is_chosen_keeps_its_slope() -> None:
    gradient = jax.grad(lambda x: apply("sqrt", x).sum())(jnp.asarray([0.0, 4.0]))
    np.testing.assert_array_equal(gradient, [np.inf, 0.25])


def test_gradients_have_gradients() -> None:
    def cube(x: Any) -> Any:
        return apply("*", x, apply("*", x, x)).sum()

    second = jax.grad(lambda x: jax.grad(cube)(x).sum())(jnp.asarray([1.0, 2.0]))
    np.testing.assert_allclose(second, [6.0, 12.0])
