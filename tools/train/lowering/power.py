"""Powers."""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.tools.train.lowering.elementwise import curved

_State: TypeAlias = tuple[jax.Array, jax.Array, jax.Array]


def power_of_integers(base: jax.Array, exponent: jax.Array) -> jax.Array:
    """By squaring, over every bit of the exponent; it wraps around.

    To a negative exponent it is the quotient 1 / base^-exponent cut towards zero, as the reference
    has it: the powers of 1 and -1 depend on the last bit alone, all others are 0.
    """
    negative = exponent < 0
    bits = jnp.where(negative, exponent & 1, exponent)

    def square(state: _State) -> _State:
        result, factor, left = state
        return jnp.where(left & 1 == 1, result * factor, result), factor * factor, left >> 1

    start = (jnp.ones_like(base), base, bits)
    whole = lax.while_loop(lambda state: jnp.any(state[2] != 0), square, start)[0]
    return jnp.where(negative & (jnp.abs(base) != 1), jnp.zeros_like(whole), whole)


curved("pow", jnp.power, power_of_integers)
