"""Logic on bool, and the same bit by bit on integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sexpgpu.tools.train.lowering.elementwise import plain


def shift_left(a: jax.Array, count: jax.Array) -> jax.Array:
    """A count that is out of the dtype's bits, which XLA leaves open, moves every bit out."""
    shifted = jnp.left_shift(a, jnp.where(_within(count), count, 0))
    return jnp.where(_within(count), shifted, jnp.zeros_like(shifted))


def shift_right(a: jax.Array, count: jax.Array) -> jax.Array:
    """The sign follows; nothing but the sign is left where the count is out of the bits."""
    return jnp.right_shift(a, jnp.where(_within(count), count, _bits(count) - 1))


def _within(count: jax.Array) -> jax.Array:
    return (count >= 0) & (count < _bits(count))


def _bits(array: jax.Array) -> int:
    return array.dtype.itemsize * 8


plain("logical-and", jnp.logical_and)
plain("logical-or", jnp.logical_or)
plain("logical-xor", jnp.logical_xor)
plain("logical-not", jnp.logical_not)
plain("bitwise-and", jnp.bitwise_and)
plain("bitwise-or", jnp.bitwise_or)
plain("bitwise-xor", jnp.bitwise_xor)
plain("bitwise-not", jnp.bitwise_not)
plain("shift-left", shift_left)
plain("shift-right", shift_right)
