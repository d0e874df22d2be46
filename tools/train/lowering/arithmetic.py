"""Sums, differences, products, and the larger and smaller of two."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.export.operations.arithmetic import bounds
from sexpgpu.tools.train.lowering.elementwise import curved, plain
from sexpgpu.tools.train.lowering.rule import Application, rule


def sign(x: jax.Array) -> jax.Array:
    """That of -0.0 is 0.0, as NumPy has it."""
    return jnp.where(x == 0, jnp.zeros_like(x), jnp.sign(x))


@jax.custom_jvp
def absolute(x: jax.Array) -> jax.Array:
    """The slope at 0 is 0."""
    return jnp.abs(x)


@absolute.defjvp
def _slope_of_absolute(
    operands: tuple[jax.Array], steps: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return absolute(operands[0]), sign(operands[0]) * steps[0]


@rule("clip")
def clip(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """The gradient is 1 from bound to bound, the bounds themselves included."""
    x = inputs[0]
    low, high = bounds(at.attributes, at.results[0].dtype)
    return [jnp.where(x < low, low, jnp.where(x > high, high, x))]


plain("+", jnp.add)
plain("-", jnp.subtract)
curved("*", jnp.multiply)
plain("neg", jnp.negative)
plain("stop-gradient", lax.stop_gradient)
curved("abs", absolute)
plain("sign", sign)
# Where both are equal each has half of the gradient.
plain("minimum", jnp.minimum)
plain("maximum", jnp.maximum)
