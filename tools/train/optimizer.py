"""Optimizers: what a run declares, as a transformation of optax.

An update is, in this order: the gradients clipped, the optimizer's own rule, times the rate of the
schedule at this step.  Below, g is a clipped gradient, w a parameter, t the step from 1, η the rate
and λ `weight-decay`; operations are elementwise.

    sgd        w ← w - η (g + λw)
    momentum   m ← μm + g + λw;  w ← w - η m;  with nesterov w ← w - η (g + λw + μm)
    adam       m ← β₁m + (1 - β₁) g;  v ← β₂v + (1 - β₂) g²
               w ← w - η m̂ / (√v̂ + ε),  where m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ)
    adamw      the same, and w ← w - η λ w beside it
    lion       w ← w - η (sign(β₁m + (1 - β₁) g) + λw);  m ← β₂m + (1 - β₂) g
    adafactor  v ← β v + (1 - β)(g² + ε),  where β = 1 - t^-decay;  u = g / √v
               w ← w - η max(10⁻³, rms(w)) u / max(1, rms(u))

In sgd and momentum the decay is the gradient of a penalty (L2); in adamw and lion it goes past the
optimizer (decoupled), scaled by the rate.  It pulls at parameters of two axes or more (matrices,
kernels, tables of embeddings) and never at biases and gains.  Adafactor keeps v as its row and
column means where a parameter's two longest axes have 128 elements each or more.

Momentum: Sutskever et al., 2013, https://proceedings.mlr.press/v28/sutskever13.html, with the rate
outside of m.  Adam: Kingma & Ba, 2015, https://arxiv.org/abs/1412.6980, algorithm 1.  AdamW:
Loshchilov & Hutter, 2019, https://arxiv.org/abs/1711.05101, algorithm 2, its decay scaled by the
rate.  Lion: Chen et al., 2023, https://arxiv.org/abs/2302.06675, algorithm 2.  Adafactor: Shazeer &
Stern, 2018, https://arxiv.org/abs/1804.04235, algorithms 4 and 5, with ρ given by the schedule.
Clipping by the norm: Pascanu et al., 2013, https://arxiv.org/abs/1211.5063, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import optax

from sexpgpu.export.language.recipes import Recipe
from sexpgpu.export.language.run import Run
from sexpgpu.tools.train.schedule import make_schedule

#: A part of an update; its name is that of its state.
_Part: TypeAlias = tuple[str, optax.GradientTransformation]


def make_optimizer(run: Run) -> optax.GradientTransformation:
    """The run's optimizer, over parameters by path: f32 or f64, the dtype of gradient and state.

    The state is a dict by the names of the parts, such as `adam`, `rate` and `momentum`, so that
    its tensors are named `adam.mu.blocks.0.w`; `sexpgpu.tools.train.state` writes them down.
    `update` needs the parameters.
    """
    rate = make_schedule(run.schedule, run.steps, run.optimizer.options["lr"])
    return optax.named_chain(
        *_clipping(run.clip),
        *_rule(run.optimizer.name, run.optimizer.options),
        ("rate", optax.scale_by_schedule(lambda count: -rate(count))),
    )


def _clipping(clip: Recipe | None) -> list[_Part]:
    """By the norm of all gradients together, or each element by itself."""
    if clip is None:
        return []
    if clip.name == "clip-norm":
        return [("clip", optax.clip_by_global_norm(clip.options["norm"]))]
    return [("clip", optax.clip(clip.options["value"]))]


def _rule(name: str, options: Mapping[str, Any]) -> list[_Part]:
    decay = _weight_decay(options.get("weight-decay", 0.0))
    match name:
        case "sgd":
            return [*decay]
        case "momentum":
            return [*decay, ("momentum", optax.trace(options["momentum"], options["nesterov"]))]
        case "adam" | "adamw":
            betas = options["beta1"], options["beta2"]
            return [("adam", optax.scale_by_adam(*betas, options["epsilon"])), *decay]
        case "lion":
            return [("lion", optax.scale_by_lion(options["beta1"], options["beta2"])), *decay]
        case "adafactor":
            moments = optax.scale_by_factored_rms(
                decay_rate=options["decay"], epsilon=options["epsilon"]
            )
            return [
                ("adafactor", moments),
                ("clip-update", optax.clip_by_block_rms(1.0)),
                ("scale", optax.scale_by_param_block_rms(1e-3)),
            ]
    raise LookupError(f"no optimizer is called {name}")


def _weight_decay(amount: float) -> list[_Part]:
    return [("decay", optax.add_decayed_weights(amount, _decays))] if amount else []


def _decays(parameters: Any) -> Any:
    """Which parameters decay."""
    return jax.tree.map(lambda parameter: parameter.ndim >= 2, parameters)
