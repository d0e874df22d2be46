"""Normalisation along axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.tools.train.lowering.rule import Application, rule


@rule("softmax")
def softmax_rule(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [softmax(at.attributes["axis"], inputs[0])]


@rule("log-softmax")
def log_softmax_rule(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [_log_softmax(at.attributes["axis"], inputs[0])]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def softmax(axis: int, x: jax.Array) -> jax.Array:
    """Softmax along an axis; a row that is NaN and that nobody chose has a gradient of 0."""
    e = jnp.exp(x - jnp.max(x, axis=axis, keepdims=True, initial=-jnp.inf))
    return e / jnp.sum(e, axis=axis, keepdims=True)


def _softmax_forward(axis: int, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = softmax(axis, x)
    return y, y


def _softmax_backward(axis: int, y: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    # A row that is NaN is all NaN, and so is its total; what tells it from others stands behind the
    # sum, since XLA's CPU adds up a plain product in one pass.
    total = jnp.sum(cotangent * y, axis=axis, keepdims=True)
    unasked = (cotangent == 0) & jnp.isnan(total)
    return (jnp.where(unasked, 0, y * (cotangent - total)),)


softmax.defvjp(_softmax_forward, _softmax_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _log_softmax(axis: int, x: jax.Array) -> jax.Array:
    centered = x - jnp.max(x, axis=axis, keepdims=True, initial=-jnp.inf)
    return centered - jnp.log(jnp.sum(jnp.exp(centered), axis=axis, keepdims=True))


def _log_softmax_forward(axis: int, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = _log_softmax(axis, x)
    return y, y


def _log_softmax_backward(axis: int, y: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    total = jnp.sum(cotangent, axis=axis, keepdims=True)
    return (cotangent - jnp.where(total == 0, 0, jnp.exp(y) * total),)


_log_softmax.defvjp(_log_softmax_forward, _log_softmax_backward)


@rule("layer-normalize", "rms-normalize")
def standardize(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """The mean is taken off by `layer-normalize` alone."""
    given = at.named(inputs)
    x: jax.Array = given["x"]
    if not x.size:
        return [x]
    axes = tuple(range(at.attributes["axis"] % x.ndim, x.ndim))
    if at.operation.name == "layer-normalize":
        x = x - jnp.mean(x, axis=axes, keepdims=True)
    square = jnp.mean(x * x, axis=axes, keepdims=True)
    y = x * lax.rsqrt(square + x.dtype.type(at.attributes["epsilon"]))
    if "scale" in given:
        y = y * given["scale"]
    return [y + given["bias"] if "bias" in given else y]


@rule("batch-normalize")
def batch_normalize(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """By the statistics that it is given, which are no parameters to be trained."""
    x, scale, bias, mean, variance = inputs
    factor = scale * lax.rsqrt(variance + x.dtype.type(at.attributes["epsilon"]))
    column = (-1, *[1] * (x.ndim - 2))
    return [x * factor.reshape(column) + (bias - mean * factor).reshape(column)]
