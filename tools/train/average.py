"""Exponential moving averages of the parameters, which `:ema` asks for.

    a ← a + (1 - δ)(w - a),  where δ = min(d, (1 + t) / (10 + t))

t counts steps from 0 and d is the run's `:ema`.  The averages start as the parameters do; the
warm-up of δ makes them forget that start, so that those of a short run are of use too: plain
averages with d = 0.999 would be nine tenths untrained after 100 steps.  It is the warm-up of
TensorFlow's `tf.train.ExponentialMovingAverage` with `num_updates`:
https://www.tensorflow.org/api_docs/python/tf/train/ExponentialMovingAverage
Averages of weights: Polyak & Juditsky, 1992, https://doi.org/10.1137/0330046.

An average is f64 of an f64 parameter, and f32 of all others.  A whole number or a truth has none.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp


def start_averages(parameters: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The averages before the first step, by path: copies of the parameters that have one."""
    return {
        path: jnp.array(parameter, _dtype(parameter), copy=True)
        for path, parameter in parameters.items()
        if jnp.issubdtype(parameter.dtype, jnp.floating)
    }


def update(
    averages: Mapping[str, jax.Array],
    parameters: Mapping[str, jax.Array],
    decay: float,
    step: int | jax.Array,
) -> dict[str, jax.Array]:
    """The averages after step `step`, which left these parameters.

    Every average has a parameter of its path; parameters without an average are passed over.
    """
    kept = averaging_decay(decay, step)
    return {
        path: average
        + (1 - kept).astype(average.dtype) * (parameters[path].astype(average.dtype) - average)
        for path, average in averages.items()
    }


def averaging_decay(decay: float, step: int | jax.Array) -> jax.Array:
    """δ: how much of an average is kept at this step."""
    count = jnp.asarray(step, float)
    return jnp.minimum(decay, (1 + count) / (10 + count))


def _dtype(parameter: jax.Array) -> jnp.dtype:
    return jnp.promote_types(parameter.dtype, jnp.float32)
