"""The order of elements along an axis, as `comparable` of the operations defines it.

Where XLA flushes them, as on the CPU, subnormal numbers are equal to 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sexpgpu.tools.train.lowering.rule import Application, rule


def comparable(x: jax.Array, nan: float = jnp.inf) -> jax.Array:
    """Numbers in the order of x, through which no gradient goes; NaN is `nan`, an infinity that no
    number is.
    """
    x = lax.stop_gradient(jnp.asarray(x))
    if jnp.issubdtype(x.dtype, jnp.integer):
        return x
    largest = np.finfo(x.dtype).max
    bounded = jnp.minimum(x, largest) if nan > 0 else jnp.maximum(x, -largest)
    return jnp.where(jnp.isnan(x), x.dtype.type(nan), bounded)


def order_of(x: jax.Array, axis: int, *, descending: bool) -> jax.Array:
    """From which position each element of the sorted axis comes, i32; of equals the lower first."""
    key = comparable(x)
    if descending:
        # ~x is -x - 1, which unlike -x every whole number has.
        key = ~key if jnp.issubdtype(key.dtype, jnp.integer) else -key
    positions = lax.broadcasted_iota(jnp.int32, key.shape, axis)
    return lax.sort((key, positions), axis, is_stable=True, num_keys=1)[1]


def _at(x: jax.Array, order: jax.Array, axis: int) -> jax.Array:
    return jnp.take_along_axis(x, order, axis, mode="promise_in_bounds")


@rule("argmax")
def argmax(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    axis = at.attributes["axis"] % inputs[0].ndim
    found = lax.argmax(comparable(inputs[0]), axis, jnp.int32)
    return [jnp.reshape(found, at.results[0].shape)]


@rule("argmin")
def argmin(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    axis = at.attributes["axis"] % inputs[0].ndim
    found = lax.argmin(comparable(inputs[0], -jnp.inf), axis, jnp.int32)
    return [jnp.reshape(found, at.results[0].shape)]


@rule("sort")
def sort(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    x, axis = inputs[0], at.attributes["axis"] % inputs[0].ndim
    return [_at(x, order_of(x, axis, descending=at.attributes["descending"]), axis)]


@rule("argsort")
def argsort(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    axis = at.attributes["axis"] % inputs[0].ndim
    return [order_of(inputs[0], axis, descending=at.attributes["descending"])]


@rule("top-k")
def top_k(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    # A whole sort: the selections that backends have for k do not all keep the order of equals.
    x, axis = inputs[0], at.attributes["axis"] % inputs[0].ndim
    order = order_of(x, axis, descending=True)
    first = lax.slice_in_dim(order, 0, at.attributes["k"], axis=axis)
    return [_at(x, first, axis), first]
