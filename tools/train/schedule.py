"""Schedules: how the learning rate goes over the steps of a run.

A rate is `peak · warm(t) · fall(t)`; steps t count from 0, so that a run of T steps takes its last
one at T - 1.  With a warm-up of W steps and a fall that ends at step S (`:steps`, or else T):

    warm(t) = min(1, (t + 1) / (W + 1))               peak / (W + 1) at step 0, the peak at step W
    p(t)    = clip((t - W) / max(S - W, 1), 0, 1)     0 up to step W, 1 from step S on

    schedule            fall(t)
    constant-schedule   1
    warm-up             1; its `steps` are W
    cosine              final + (1 - final) · (1 + cos(π p)) / 2
    linear-decay        final + (1 - final) · (1 - p)
    steps               factor ^ (how many of `at` are ≤ t)

The warm-up wastes no step at a rate of 0, and W steps lie below the peak.  `final` is a fraction of
the peak: the rate from step S on.  A fall that would end before the warm-up does takes one step.

The cosine: Loshchilov & Hutter, SGDR, 2017, https://arxiv.org/abs/1608.03983, equation 5, without
restarts, joined to the linear warm-up of Goyal et al., 2017, https://arxiv.org/abs/1706.02677,
section 2.2.  The steps: He et al., 2016, https://arxiv.org/abs/1512.03385, section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, overload

import jax
import jax.numpy as jnp
import numpy as np

from sexpgpu.export.language.recipes import Recipe


class Schedule(Protocol):
    """The rate of a step: a float of an int, on the host; a scalar of a scalar, in a program."""

    @overload
    def __call__(self, step: int) -> float: ...

    @overload
    def __call__(self, step: jax.Array) -> jax.Array: ...


#: NumPy's functions, or JAX's of the same names.
_Numerics: TypeAlias = Any
_Fall: TypeAlias = Callable[[_Numerics, Any], Any]


def make_schedule(recipe: Recipe | None, steps: int, peak: float) -> Schedule:
    """The schedule of a run of so many steps; without a recipe the rate stays at the peak.

    In a program the rate is f64 where JAX has 64-bit dtypes, and f32 otherwise.
    """
    options: Mapping[str, Any] = {} if recipe is None else recipe.options
    name = "constant-schedule" if recipe is None else recipe.name
    warm_up = float(options["steps"] if name == "warm-up" else options.get("warm-up", 0))
    fall = _fall(name, options, steps, warm_up)

    def rate(step: Any) -> Any:
        if isinstance(step, jax.Array):
            return _rate(jnp, step.astype(jnp.result_type(float)))
        return float(_rate(np, np.float64(step)))

    def _rate(xp: _Numerics, step: Any) -> Any:
        return peak * xp.minimum(1.0, (step + 1) / (warm_up + 1)) * fall(xp, step)

    return rate


def _fall(name: str, options: Mapping[str, Any], steps: int, warm_up: float) -> _Fall:
    if name == "steps":
        at, factor = np.asarray(options["at"], np.float64), float(options["factor"])
        return lambda xp, step: xp.power(factor, xp.sum(step >= at))
    if name in ("constant-schedule", "warm-up"):
        return lambda xp, step: 1.0
    end = steps if options["steps"] is None else options["steps"]
    final, length = float(options["final"]), max(end - warm_up, 1)

    def fall(xp: _Numerics, step: Any) -> Any:
        progress = xp.clip((step - warm_up) / length, 0.0, 1.0)
        left = (1 + xp.cos(np.pi * progress)) / 2 if name == "cosine" else 1 - progress
        return final + (1 - final) * left

    return fall
