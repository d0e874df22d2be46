"""Quotients and remainders, by the steps that NumPy takes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.tools.train.lowering.elementwise import curved


@jax.custom_jvp
def modulo(a: jax.Array, b: jax.Array) -> jax.Array:
    """The exact remainder, moved to the side of the divisor; a zero has the divisor's sign."""
    remainder = lax.rem(a, b)
    moved = jnp.where(_falls_short(remainder, b), remainder + b, remainder)
    return jnp.where(remainder == 0, jnp.copysign(jnp.zeros_like(b), b), moved)


@modulo.defjvp
def _slope_of_modulo(
    operands: tuple[jax.Array, jax.Array], steps: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """a - b · floor(a / b), of which the floor is flat."""
    a, b = operands
    return modulo(a, b), steps[0] - floor_divide(a, b) * steps[1]


def floor_divide(a: jax.Array, b: jax.Array) -> jax.Array:
    """The floor of the quotient, from the exact remainder: 1.0 by 0.1 is 9.  It has no slope."""
    a, b = lax.stop_gradient(a), lax.stop_gradient(b)
    remainder = lax.rem(a, b)
    quotient = (a - remainder) / b
    quotient = jnp.where(_falls_short(remainder, b), quotient - 1, quotient)
    # It is whole but for the division's rounding.
    floor = jnp.floor(quotient)
    whole = jnp.where(quotient - floor > 0.5, floor + 1, floor)
    whole = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(b), a / b), whole)
    return jnp.where(b == 0, a / b, whole)


def _modulo_of_integers(a: jax.Array, b: jax.Array) -> jax.Array:
    remainder = lax.rem(a, _divisor(b))
    moved = jnp.where(_falls_short(remainder, b), remainder + b, remainder)
    return jnp.where(b == 0, jnp.zeros_like(moved), moved)


def _floor_divide_integers(a: jax.Array, b: jax.Array) -> jax.Array:
    divisor = _divisor(b)
    quotient = lax.div(a, divisor)
    floor = quotient - _falls_short(lax.rem(a, divisor), divisor).astype(a.dtype)
    return jnp.where(b == 0, jnp.zeros_like(floor), floor)


def _divisor(b: jax.Array) -> jax.Array:
    return jnp.where(b == 0, jnp.ones_like(b), b)


def _falls_short(remainder: jax.Array, divisor: jax.Array) -> jax.Array:
    """Whether a quotient cut towards zero lies above its floor."""
    return (remainder != 0) & ((remainder < 0) != (divisor < 0))


curved("/", jnp.divide)
curved("mod", modulo, _modulo_of_integers)
curved("floor-divide", floor_divide, _floor_divide_integers)
