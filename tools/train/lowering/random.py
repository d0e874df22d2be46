"""Random numbers, from the key of the application and the attribute `seed`.

Equal keys and seeds give equal numbers on every device; they are other numbers than the reference
draws, of the same distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.export.graph.types import concrete
from sexpgpu.tools.train.lowering.rule import Application, rule

#: How far, in proportion, 16 random bits may be from a probability that they stand for.
_TOLERANCE = 1e-4


@rule("random-normal")
def random_normal(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    (result,) = at.results
    drawn = jax.random.normal(_key(at), concrete(result.shape, 1), result.dtype.numpy)
    return [drawn * at.attributes["deviation"] + at.attributes["mean"]]


@rule("random-uniform")
def random_uniform(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    (result,) = at.results
    low, high = at.attributes["low"], at.attributes["high"]
    drawn = jax.random.uniform(_key(at), concrete(result.shape, 1), result.dtype.numpy)
    # Not low + (high − low) · drawn, whose difference may be too large for the dtype.
    return [jnp.clip((1 - drawn) * low + drawn * high, low, high)]


@rule("dropout")
def dropout(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    (x,) = inputs
    rate = at.attributes["rate"]
    if not rate or not x.size:
        return [x]
    kept = ~happens(_key(at), rate, x.shape)
    return [jnp.where(kept, x / x.dtype.type(1 - rate), 0)]


def happens(key: jax.Array, probability: float, shape: Sequence[int]) -> jax.Array:
    """Booleans that are true with a probability below 1, each by itself.

    Drawing is what takes the time: two of them share 32 random bits where 16 tell the probability
    well enough.
    """
    share = probability * 2**16
    error = abs(round(share) - share)
    if error > _TOLERANCE * min(share, 2**16 - share):
        words = jax.random.bits(key, shape, jnp.uint32)
        return jnp.less(words, jnp.uint32(probability * 2**32))
    size = math.prod(shape)
    words = jax.random.bits(key, (-(-size // 2),), jnp.uint32)
    halves = lax.bitcast_convert_type(words, jnp.uint16).reshape(-1)[:size]
    return jnp.less(halves, jnp.uint16(round(share))).reshape(shape)


def _key(at: Application) -> jax.Array:
    """A seed may be of any size: it goes in by words of 32 bits."""
    key, seed = at.key, at.attributes["seed"]
    while True:
        key = jax.random.fold_in(key, seed & 0xFFFFFFFF)
        seed >>= 32
        if not seed:
            return key
