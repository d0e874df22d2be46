"""The same elements at other places: other shapes, orders, parts, and longer axes."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.export.operations.permutation import Permutation
from sexpgpu.export.operations.rules import fitting, normalize_axes
from sexpgpu.export.operations.selection import first_positions
from sexpgpu.tools.train.lowering.rule import Application, rule


@rule("reshape", "squeeze", "unsqueeze")
def reshape(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [jnp.reshape(inputs[0], at.results[0].shape)]


@rule("broadcast-to")
def broadcast_to(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [jnp.broadcast_to(inputs[0], at.results[0].shape)]


@rule("transpose", "permute")
def permute(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    operation = at.operation
    assert isinstance(operation, Permutation)
    return [jnp.transpose(inputs[0], operation.order(inputs[0].ndim, at.attributes))]


@rule("concat")
def concat(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [jnp.concatenate(inputs, axis=at.attributes["axis"])]


@rule("stack")
def stack(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [jnp.stack(inputs, axis=at.attributes["axis"])]


@rule("split")
def split(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    axis = at.attributes["axis"] % inputs[0].ndim
    return lax.split(jnp.asarray(inputs[0]), [type.shape[axis] for type in at.results], axis)


@rule("slice")
def slice_(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    x, axis = jnp.asarray(inputs[0]), at.attributes["axis"] % inputs[0].ndim
    bounds = slice(at.attributes["from"], at.attributes["to"], at.attributes["step"])
    positions = range(x.shape[axis])[bounds]
    if not positions:
        return [lax.slice_in_dim(x, 0, 0, axis=axis)]
    ascending = positions if positions.step > 0 else positions[::-1]
    # A stride may be larger than any index; of one position it says nothing.
    stride = ascending.step if len(ascending) > 1 else 1
    taken = lax.slice_in_dim(x, ascending[0], ascending[-1] + 1, stride, axis)
    return [taken if positions.step > 0 else lax.rev(taken, (axis,))]


@rule("flip")
def flip(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    axes = normalize_axes("flip", at.attributes["axis"], inputs[0].ndim)
    return [lax.rev(jnp.asarray(inputs[0]), axes)]


@rule("roll")
def roll(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    firsts = first_positions(inputs[0].shape, at.attributes)
    return [jnp.roll(inputs[0], [-first for first in firsts.values()], tuple(firsts))]


@rule("shift")
def shift(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    x, axis = jnp.asarray(inputs[0]), at.attributes["axis"]
    length = x.shape[axis]
    count = min(max(at.attributes["count"], -length), length)
    widths = [(0, 0, 0)] * x.ndim
    # Negative widths cut.
    widths[axis] = (count, -count, 0)
    value = fitting("shift", at.attributes["value"], at.results[0].dtype)
    return [lax.pad(x, jnp.asarray(value), widths)]


@rule("pad")
def pad(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    x, mode = jnp.asarray(inputs[0]), at.attributes["mode"]
    before, after = (at.attributes[side] or (0,) * x.ndim for side in ("before", "after"))
    widths = list(zip(before, after, strict=True))
    if mode != "constant":
        return [jnp.pad(x, widths, mode=mode) if widths else x]
    value = fitting("pad", at.attributes["value"], at.results[0].dtype)
    return [lax.pad(x, jnp.asarray(value), [(*width, 0) for width in widths])]


@rule("tile")
def tile(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [jnp.tile(inputs[0], at.attributes["repeats"])]
