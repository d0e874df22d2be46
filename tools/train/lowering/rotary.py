"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from sexpgpu.export.operations.rotary import rotation_of
from sexpgpu.export.operations.rotation import Rotation
from sexpgpu.tools.train.lowering.rule import Application, rule

#: Angles whose cosines and sines are constants of the program; more are computed as it runs.
_LARGEST_TABLE = 2**20


@rule("rotary")
def rotary(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    given = at.named(inputs)
    x, positions = given["x"], given.get("positions")
    rotation = rotation_of(x.shape, at.attributes)
    if not rotation.turned or not x.size:
        return [x]
    if positions is not None and positions.ndim > 1:
        positions = positions.reshape((len(positions), *[1] * (x.ndim - 3), x.shape[-2]))
    return [_turn(rotation, x, *_angles(rotation, x, positions))]


def _angles(
    rotation: Rotation, x: jax.Array, positions: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines that broadcast to the pairs, found in f64."""
    length = x.shape[-2] if positions is None else rotation.length
    if length is not None and length * rotation.turned // 2 <= _LARGEST_TABLE:
        cosines, sines = map(jnp.asarray, rotation.tables(np.arange(length), x.dtype))
        if positions is None:
            return cosines, sines
        positions = jnp.clip(positions, 0, length - 1)
        return jnp.take(cosines, positions, axis=0), jnp.take(sines, positions, axis=0)
    if positions is None:
        positions = jnp.arange(x.shape[-2])
    if rotation.length is not None:
        positions = jnp.clip(positions, 0, rotation.length - 1)
    angles = positions.astype(jnp.float64)[..., None] * rotation.frequencies()
    cosines, sines = rotation.gain * jnp.cos(angles), rotation.gain * jnp.sin(angles)
    return cosines.astype(x.dtype), sines.astype(x.dtype)


def _turn(rotation: Rotation, x: jax.Array, cosines: jax.Array, sines: jax.Array) -> jax.Array:
    part, rest = x[..., : rotation.turned], x[..., rotation.turned :]
    if rotation.interleaved:
        pairs = part.reshape((*part.shape[:-1], rotation.turned // 2, 2))
        a, b = pairs[..., 0], pairs[..., 1]
    else:
        a, b = jnp.split(part, 2, axis=-1)
    turned = (a * cosines - b * sines, b * cosines + a * sines)
    if rotation.interleaved:
        return jnp.concatenate([jnp.stack(turned, axis=-1).reshape(part.shape), rest], axis=-1)
    return jnp.concatenate([*turned, rest], axis=-1)
