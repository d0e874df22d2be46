"""Reductions, and the sums along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.export.operations.rules import normalize_axes
from sexpgpu.tools.train.lowering.arithmetic import absolute
from sexpgpu.tools.train.lowering.rule import Application, Rule, rule
from sexpgpu.tools.train.lowering.shielding import shielded

#: Of an array and the axes to reduce, the reduced array with the axes kept.
Reducer: TypeAlias = Callable[[jax.Array, tuple[int, ...], Application], jax.Array]


def reduction(name: str, *, curved: bool = False) -> Callable[[Reducer], Rule]:
    """Makes the function the rule of a reduction; a `curved` one, whose slope depends on where it
    is, has no gradient where 0 comes back.
    """

    def put(reducer: Reducer) -> Rule:
        def reduced(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
            x = jnp.asarray(inputs[0])
            axes = normalize_axes(name, at.attributes["axis"], x.ndim)

            def function(x: jax.Array) -> jax.Array:
                return reducer(x, axes, at)

            is_float = jnp.issubdtype(x.dtype, jnp.floating)
            found = (shielded(function) if curved and is_float else function)(x)
            return [jnp.reshape(found, at.results[0].shape)]

        return rule(name)(reduced)

    return put


@reduction("sum")
def sum_(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    return jnp.sum(x, axes, x.dtype, keepdims=True)


@reduction("mean")
def mean(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    return jnp.mean(x, axes, keepdims=True)


@reduction("prod", curved=True)
def prod(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    # Its derivative is a tree of products, which does not divide: zeros do no harm.
    return jnp.prod(x, axes, x.dtype, keepdims=True)


@reduction("max", curved=True)
def max_(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    """Elements that are the largest together share the gradient equally."""
    return jnp.max(x, axes, keepdims=True)


@reduction("min", curved=True)
def min_(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    """Elements that are the smallest together share the gradient equally."""
    return jnp.min(x, axes, keepdims=True)


@reduction("any")
def any_(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    return jnp.any(x, axes, keepdims=True)


@reduction("all")
def all_(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    return jnp.all(x, axes, keepdims=True)


@reduction("variance", curved=True)
def variance(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    distance = x - jnp.mean(x, axes, keepdims=True)
    total = jnp.sum(distance * distance, axes, keepdims=True)
    count = math.prod(x.shape[axis] for axis in axes)
    # As the reference: a division by 0 where the records are no more than the correction.
    return total / jnp.asarray(max(count - at.attributes["correction"], 0), x.dtype)


@reduction("logsumexp", curved=True)
def logsumexp(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    """The gradient is the softmax; where all is -inf, it is 0."""
    largest = jnp.max(x, axes, keepdims=True, initial=-jnp.inf)
    # The shift changes nothing but the rounding, so that no gradient goes through it.
    shift = lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0))
    total = jnp.sum(jnp.exp(x - shift), axes, keepdims=True)
    nothing = total == 0
    return jnp.where(nothing, -jnp.inf, jnp.log(jnp.where(nothing, 1, total))) + shift


@reduction("norm", curved=True)
def norm(x: jax.Array, axes: tuple[int, ...], at: Application) -> jax.Array:
    """The gradient of order 2 at 0, where the norm has a tip, is 0; so is that of the other orders
    along an element that is 0.  Of order inf, the elements of largest size share it.
    """
    order = at.attributes["order"]
    if order != 2:
        return (jnp.sum if order == 1 else jnp.max)(absolute(x), axes, keepdims=True)
    total = jnp.sum(x * x, axes, keepdims=True)
    nothing = total == 0
    return jnp.where(nothing, 0, jnp.sqrt(jnp.where(nothing, 1, total)))


@rule("cumsum")
def cumsum(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    x, reverse = jnp.asarray(inputs[0]), at.attributes["reverse"]
    axis = at.attributes["axis"] % x.ndim
    if at.attributes["exclusive"]:
        # Each element moves on by one place: a 0 comes in and the last goes out.
        moves = [(0, 0, 0)] * x.ndim
        moves[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
        x = lax.pad(x, jnp.zeros((), x.dtype), moves) if x.size else x
    return [lax.cumsum(x, axis, reverse=reverse)]
