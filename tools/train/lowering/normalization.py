"""Normalisation along axes."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.tools.train.lowering.rule import Application, rule


@rule("softmax")
def softmax(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [jax.nn.softmax(inputs[0], axis=at.attributes["axis"])]


@rule("log-softmax")
def log_softmax(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    return [jax.nn.log_softmax(inputs[0], axis=at.attributes["axis"])]


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
