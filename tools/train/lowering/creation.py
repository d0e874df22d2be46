"""Tensors made out of numbers, sizes or indices."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from sexpgpu.export.graph.types import concrete
from sexpgpu.export.operations.rules import fitting, normalize_axis
from sexpgpu.tools.train.lowering.rule import Application, rule

#: Elements that are written into the program; more are computed where it runs.
_STORED = 65_536


@rule("constant")
def constant(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [jnp.asarray(at.attributes["value"])]


@rule("full")
def full(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    # Rounded to its own dtype first: the result is f32 where that is bf16.
    value = fitting("full", at.attributes["value"], at.attributes["dtype"])
    (result,) = at.results
    return [jnp.full(result.shape, value, result.dtype.numpy)]


@rule("iota")
def iota(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    (length,) = at.attributes["length"]
    dtype = at.results[0].dtype
    if length <= _STORED:
        (numbers,) = at.operation.evaluate([], at.attributes)
        return [jnp.asarray(numbers, dtype.numpy)]
    wide = jnp.dtype(jnp.int64 if dtype.is_integer else jnp.float64)
    start, step = (wide.type(at.attributes[name]) for name in ("start", "step"))
    return [(start + jnp.arange(length, dtype=wide) * step).astype(dtype.numpy)]


@rule("eye")
def eye(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    (result,) = at.results
    rows, columns = concrete(result.shape, 1)
    # Past the corners there is nothing, and an offset may be larger than any index.
    offset = min(max(at.attributes["offset"], -rows), columns)
    return [jnp.eye(rows, columns, offset, result.dtype.numpy)]


@rule("one-hot")
def one_hot(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    depth = at.attributes["depth"]
    axis = normalize_axis("one-hot", at.attributes["axis"], inputs[0].ndim + 1)
    wide = inputs[0].dtype if depth <= np.iinfo(np.int32).max else jnp.int64
    indices = jnp.expand_dims(jnp.asarray(inputs[0], wide), axis)
    indices = jnp.where(indices < 0, indices + depth, indices)
    classes = jax.lax.broadcasted_iota(indices.dtype, at.results[0].shape, axis)
    return [(indices == classes).astype(at.results[0].dtype.numpy)]
