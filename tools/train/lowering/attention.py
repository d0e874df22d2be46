"""Scaled dot product attention: two products, and between them what XLA makes one loop of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from sexpgpu.export.operations.attention import group_of, scale_of, visibility_of
from sexpgpu.export.operations.visibility import Visibility
from sexpgpu.tools.train.lowering.normalization import softmax
from sexpgpu.tools.train.lowering.products import is_rounded, multiply
from sexpgpu.tools.train.lowering.rule import Application, rule


@rule("attention")
def attention(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    given = at.named(inputs)
    q, k, v = given["q"], given["k"], given["v"]
    rounded = is_rounded(at, q)
    group = group_of(q.shape, k.shape) or 1
    shape = (*q.shape[:-1], k.shape[-2])
    # Heads that share one of k stand together: their queries are queries of one head.
    if group > 1:
        q = q.reshape((q.shape[0], k.shape[1], group * q.shape[2], q.shape[3]))
    outer = "bh"[: q.ndim - 2]
    scores = multiply(q, outer + "qd", k, outer + "kd", outer + "qk", rounded=rounded)
    scores = scores.reshape(shape) * q.dtype.type(scale_of(at.attributes, q.shape))
    if at.attributes["softcap"] is not None:
        cap = q.dtype.type(at.attributes["softcap"])
        scores = cap * jnp.tanh(scores / cap)
    if "bias" in given:
        scores = scores + given["bias"]
    weights = _distribute(scores, *_seen(at, given, given["q"], k))
    weights = weights.reshape((*q.shape[:-1], k.shape[-2]))
    y = multiply(weights, outer + "qk", v, outer + "kd", outer + "qd", rounded=rounded)
    return [y.reshape((*shape[:-1], v.shape[-1]))]


def _seen(
    at: Application, given: Mapping[str, jax.Array], q: jax.Array, k: jax.Array
) -> tuple[jax.Array | None, bool]:
    """Which keys a query sees, as small as it broadcasts, None for all; and whether a query may see
    none."""
    visibility = visibility_of(q.shape, k.shape, at.attributes)
    masks = []
    if "mask" in given:
        masks.append(given["mask"])
    if "bias" in given:
        masks.append(given["bias"] != -jnp.inf)
    if visibility.is_limited:
        masks.append(_within(visibility, given.get("positions"), q))
    if not masks:
        return None, False
    seen = masks[0]
    for mask in masks[1:]:
        seen = seen & mask
    may_be_blind = bool(set(given) & {"mask", "bias", "positions"}) or visibility.may_be_blind()
    return seen, may_be_blind


def _within(visibility: Visibility, positions: jax.Array | None, q: jax.Array) -> jax.Array:
    """The same by places alone; made while the program runs, so that no table stands in it."""
    if positions is None:
        places = jnp.arange(visibility.queries) + (visibility.keys - visibility.queries)
    else:
        places = positions.astype(jnp.int64)
        if places.ndim > 1:
            places = places.reshape((len(q), *[1] * (q.ndim - 3), q.shape[-2]))
    places = (places + visibility.offset)[..., None]
    keys = jnp.arange(visibility.keys)
    seen = keys <= places
    return seen if visibility.window is None else seen & (keys > places - visibility.window)


def _distribute(scores: jax.Array, seen: jax.Array | None, may_be_blind: bool) -> jax.Array:
    """The softmax over the keys that are seen; zeros where there are none."""
    if seen is not None:
        scores = jnp.where(seen, scores, -jnp.inf)
    weights = softmax(-1, scores)
    if seen is None or not may_be_blind:
        return weights
    return jnp.where(jnp.any(seen, axis=-1, keepdims=True), weights, 0)
