"""Pooling, one spatial axis after the other: slices, whose gradients XLA's CPU finds quickly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sexpgpu.export.operations.pooling import covered_counts
from sexpgpu.export.operations.windows import Windows, place_windows
from sexpgpu.tools.train.lowering.rule import Application, rule

#: Up to this size every position of a window is a slice.
_SLICED_SIZE = 8


@rule("max-pool")
def max_pool(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Elements that are equally large share the gradient."""
    (x,) = inputs
    windows = _windows(at, x)
    least = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else np.iinfo(x.dtype).min
    x = jnp.pad(x, windows.padded(), constant_values=least)
    for axis in range(len(windows.sizes)):
        x = _combine(x, windows, axis, jnp.maximum, jnp.max, lax.max, x.dtype.type(least))
    return [x]


@rule("average-pool")
def average_pool(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    (x,) = inputs
    windows = _windows(at, x)
    x = jnp.pad(x, windows.padded())
    for axis in range(len(windows.sizes)):
        x = _combine(x, windows, axis, jnp.add, jnp.sum, lax.add, x.dtype.type(0))
    counts = covered_counts(windows, at.attributes["count-include-pad"])
    return [x / counts.astype(x.dtype)]


def _windows(at: Application, x: jax.Array) -> Windows:
    size, stride = at.attributes["size"], at.attributes["stride"]
    return place_windows(
        at.operation.name,
        x.shape[2:],
        size,
        size if stride is None else stride,
        at.attributes["padding"],
        ceil=at.attributes["ceil"],
    )


def _combine(
    x: jax.Array,
    windows: Windows,
    axis: int,
    pair: Callable[[jax.Array, jax.Array], jax.Array],
    several: Callable[..., jax.Array],
    primitive: Callable[[jax.Array, jax.Array], jax.Array],
    start: np.generic,
) -> jax.Array:
    """What the windows along one spatial axis give, by the operation of two, or of several."""
    size, place = windows.sizes[axis], 2 + axis
    if windows.counts[axis] == 1:
        whole = lax.slice_in_dim(x, 0, size, axis=place)
        return several(whole, axis=place, keepdims=True)
    if size > _SLICED_SIZE:
        shape, strides = [1] * x.ndim, [1] * x.ndim
        shape[place], strides[place] = size, windows.strides[axis]
        covered: jax.Array = lax.reduce_window(x, start, primitive, shape, strides, "VALID")
        return covered
    made = None
    for offset in range(size):
        part = lax.slice_in_dim(x, *windows.bounds(axis, offset), axis=place)
        made = part if made is None else pair(made, part)
    assert made is not None
    return made
