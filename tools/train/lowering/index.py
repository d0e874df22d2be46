"""Reading, and adding, at places that indices name.

A program of XLA cannot stop at an index that is out of range as the reference does.  It shows
instead: NaN is read there, and NaN is added at the place nearest to it, so that the loss tells.
Whole numbers and booleans have no NaN: read is the least number or true, and nothing is added.
Negative indices count from the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from sexpgpu.tools.train.lowering.rule import Application, rule


@rule("take")
def take(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    x, indices = map(jnp.asarray, inputs)
    axis = at.attributes["axis"] % x.ndim
    if x.shape[axis] == 0:
        return [_nowhere(at, x)]
    return [jnp.reshape(jnp.take(x, indices, axis, mode="fill"), at.results[0].shape)]


@rule("take-along")
def take_along(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    x, indices = map(jnp.asarray, inputs)
    axis = at.attributes["axis"] % x.ndim
    if x.shape[axis] == 0:
        return [_nowhere(at, x)]
    if indices.dtype == jnp.int64:
        # JAX narrows indices to i32 where the axis is short; none may come into range by that.
        indices = jnp.clip(indices, -x.shape[axis] - 1, x.shape[axis])
    found = jnp.take_along_axis(x, indices, axis, mode="fill", wrap_negative_indices=True)
    return [found]


@rule("gather-nd")
def gather_nd(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    x, indices = map(jnp.asarray, inputs)
    if x.size == 0:
        return [_nowhere(at, x)]
    return [x.at[_places(indices, at.attributes["batch-dims"])].get(mode="fill")]


@rule("scatter-add")
def scatter_add(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    x, indices, updates = map(jnp.asarray, inputs)
    shared = at.attributes["batch-dims"]
    if x.size == 0 or updates.size == 0:
        return [x]
    bad = jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0
    outside = _outside(x, indices, updates, shared)
    updates = jnp.where(outside, jnp.asarray(bad, x.dtype), updates)
    return [x.at[_places(indices, shared)].add(updates, mode="clip")]


@rule("scatter-max", "scatter-min", "scatter-set")
def scatter_one(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """One of the updates for a place, or what stands there, which has the gradient."""
    x, indices, updates = map(jnp.asarray, inputs)
    shared, kind = at.attributes["batch-dims"], at.operation.name.removeprefix("scatter-")
    if x.size == 0 or updates.size == 0:
        return [x]
    outside = _outside(x, indices, updates, shared)
    places = _places(indices, shared)
    if jnp.issubdtype(x.dtype, jnp.floating):
        updates = jnp.where(outside, jnp.asarray(jnp.nan, x.dtype), updates)
        chosen = jnp.ones(updates.shape, bool)
    else:
        # Whole numbers stay as they are.
        updates = jnp.where(outside, x.at[places].get(mode="clip"), updates)
        chosen = jnp.broadcast_to(~outside, updates.shape)
    if kind != "set":
        held = jax.lax.stop_gradient(x).at[places]
        given = jax.lax.stop_gradient(updates)
        most = (held.max if kind == "max" else held.min)(given, mode="clip")
        best = most.at[places].get(mode="clip")
        chosen &= (given == best) | ((given != given) & (best != best))
    # Each update's number, for each element of a place: that of the last one chosen stays.
    count = int(np.prod(indices.shape[shared:-1]))
    numbers = jnp.arange(count).reshape(indices.shape[shared:-1])
    numbers = numbers.reshape(numbers.shape + (1,) * (updates.ndim - indices.ndim + 1))
    numbers = jnp.where(chosen, numbers, -1)
    last = jnp.full(x.shape, -1).at[places].max(numbers, mode="clip")
    # All axes that name updates as one, and so those that name places.
    whole = x.shape[:shared]
    part = x.shape[shared + indices.shape[-1] :]
    flat = last.reshape((*whole, -1, *part))
    found = jnp.take_along_axis(
        updates.reshape((*whole, count, *part)), jnp.maximum(flat, 0), axis=shared
    )
    return [jnp.where(last >= 0, found.reshape(x.shape), x)]


def _outside(x: jax.Array, indices: jax.Array, updates: jax.Array, shared: int) -> jax.Array:
    """Which updates are for no place, as an array that broadcasts to them."""
    sizes = np.asarray(x.shape[shared : shared + indices.shape[-1]])
    outside = ((indices < -sizes) | (indices >= sizes)).any(axis=-1)
    return outside.reshape(outside.shape + (1,) * (updates.ndim - outside.ndim))


def _places(indices: jax.Array, shared: int) -> tuple[jax.Array | np.ndarray, ...]:
    """The index for places `[..., k]`, of which the first `shared` axes are also the array's."""
    own = np.indices(indices.shape[:-1], sparse=True)[:shared]
    return (*own, *jnp.moveaxis(indices, -1, 0))


def _nowhere(at: Application, x: jax.Array) -> jax.Array:
    """What is read of an array that has no places."""
    found = jnp.full((1,), 0, x.dtype).at[jnp.ones(at.results[0].shape, jnp.int32)]
    return found.get(mode="fill")
