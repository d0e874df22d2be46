"""Losses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.tools.train.lowering.rule import Application, rule

_Kept: TypeAlias = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


@rule("cross-entropy")
def cross_entropy(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    logits, targets = inputs
    classes = logits.shape[-1]
    wide = targets.astype(jnp.int64)
    loss = _loss(at.attributes["smoothing"], logits, jnp.clip(wide, 0, classes - 1))
    loss = jnp.where((wide >= 0) & (wide < classes), loss, jnp.nan)
    if at.attributes["ignore"] is not None:
        loss = jnp.where(wide == at.attributes["ignore"], 0, loss)
    return [loss]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _loss(smoothing: float, logits: jax.Array, targets: jax.Array) -> jax.Array:
    """The loss for targets that are classes.

    Its gradient is the softmax, less what the target should have: found anew from the logits, so
    that nothing of their size is kept, and without a scatter.
    """
    return _forward(smoothing, logits, targets)[0]


def _forward(smoothing: float, logits: jax.Array, targets: jax.Array) -> tuple[jax.Array, _Kept]:
    most = jnp.max(logits, axis=-1, keepdims=True)
    centered = logits - most
    total = jnp.log(jnp.sum(jnp.exp(centered), axis=-1, keepdims=True))
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1) - most
    loss = total - picked
    share = logits.dtype.type(smoothing)
    if share:
        mean = jnp.mean(centered, axis=-1, keepdims=True)
        loss = (1 - share) * loss - share * (mean - total)
    return loss[..., 0], (logits, targets, most, total)


def _backward(smoothing: float, kept: _Kept, cotangent: jax.Array) -> tuple[jax.Array, None]:
    logits, targets, most, total = kept
    share = logits.dtype.type(smoothing)
    softmax = jnp.exp((logits - most) - total)
    classes = lax.broadcasted_iota(targets.dtype, logits.shape, logits.ndim - 1)
    wanted = jnp.where(classes == targets[..., None], 1 - share, logits.dtype.type(0))
    gradient = softmax - (wanted + share / logits.shape[-1])
    # What is ignored may be NaN.
    asked = cotangent[..., None]
    return jnp.where(asked == 0, 0, asked * gradient), None


_loss.defvjp(_forward, _backward)
