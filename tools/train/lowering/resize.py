"""Resizing by interpolation."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from sexpgpu.export.graph.types import Array
from sexpgpu.export.operations.resize import all_taps, nearest_indices, resized_axes
from sexpgpu.tools.train.lowering.rule import Application, rule


@rule("resize")
def resize(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    (x,) = inputs
    if at.attributes["mode"] == "nearest":
        for axis, length, size in resized_axes(x.shape, at.attributes["size"]):
            # Where every position is repeated as often, its gradient is a sum, not a scatter.
            if size % length == 0:
                x = jnp.repeat(x, size // length, axis=axis)
            else:
                x = _take(x, nearest_indices(length, size), axis)
        return [x]
    for taps in all_taps(x.shape, at.attributes):
        column = (-1, *[1] * (x.ndim - 1 - taps.axis))
        weights = taps.weights.astype(x.dtype)
        parts = [
            _take(x, index, taps.axis) * weight.reshape(column)
            for index, weight in zip(taps.indices, weights, strict=True)
        ]
        x = sum(parts[1:], parts[0])
    return [x]


def _take(x: jax.Array, index: Array, axis: int) -> jax.Array:
    """The positions of an index that never falls."""
    place = (slice(None),) * axis + (index,)
    return x.at[place].get(mode="promise_in_bounds", indices_are_sorted=True)
