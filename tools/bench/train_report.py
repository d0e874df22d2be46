"""How fast models were trained: as data, as expected ratios, and as the tables of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from sexpgpu.tools.bench.expectations import Expectation
from sexpgpu.tools.bench.report import (
    machine,
    machine_text,
    ratio_data,
    ratio_table,
    size_text,
    table,
)
from sexpgpu.tools.bench.rounds import middle
from sexpgpu.tools.bench.train_gpt import GPTS, Gpt
from sexpgpu.tools.bench.train_turns import CONTENDERS, EAGER, JAX, RUN, STEP, Trained

BEGIN, END = "<!-- training: begin -->", "<!-- training: end -->"

#: Of two contenders: how many steps the first takes a second, in those of the second, at least.
_LIMITS = (((STEP, JAX), 0.97), ((RUN, JAX), 0.97), ((RUN, EAGER), 1.0))
#: How far, in proportion, losses of the same step may be apart: f32 summed in another order.
_TOLERANCE = 1e-4


def expectations(model: str, found: Trained) -> Iterator[Expectation]:
    """Those that can be told from what was measured for one model."""
    for (who, other), limit in _LIMITS:
        if found.seconds.get(who) and found.seconds.get(other):
            what = f"steps/s of {who}, of {other}'s"
            yield Expectation(model, what, speed(found, who, other), limit, at_least=True)
    apart = [
        abs(loss - other) / abs(other)
        for losses in found.losses.values()
        for loss, other in zip(losses, next(iter(found.losses.values())), strict=True)
    ]
    what = "losses of the first steps, apart, in tolerances"
    yield Expectation(
        model, what, float(np.max(apart)) / _TOLERANCE if apart else float("inf"), 1.0
    )


def speed(found: Trained, who: str, other: str) -> float:
    """The median of the rounds' ratios: what slows a round slows both."""
    pairs = zip(found.seconds[who], found.seconds[other], strict=True)
    return middle([theirs / ours for ours, theirs in pairs])


def as_data(all_found: Mapping[str, Trained], device: str) -> dict[str, Any]:
    """Everything, medians of the rounds."""
    return {
        "machine": machine(
            device=device, jax=version("jax"), optax=version("optax"), torch=_torch_version()
        ),
        "models": {name: _model(GPTS[name], found) for name, found in all_found.items()},
        "ratios": ratio_data(
            made for name, found in all_found.items() for made in expectations(name, found)
        ),
    }


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"


def _model(gpt: Gpt, found: Trained) -> dict[str, Any]:
    return {
        "tokens": gpt.tokens,
        "contenders": {
            who: {
                "steps_per_second": round(1 / middle(seconds), 3),
                "of_jax": round(speed(found, who, JAX), 3) if found.seconds.get(JAX) else None,
                "first_step_seconds": round(middle(found.first[who]), 2),
                "peak_bytes": found.bytes[who],
                "losses": found.losses[who],
                "step_seconds": [round(value, 6) for value in seconds],
            }
            for who in CONTENDERS
            if (seconds := found.seconds.get(who))
        },
        "unavailable": found.unavailable,
    }


def tables(data: dict[str, Any]) -> str:
    """The machine, a table for each model, and the ratios, in Markdown."""
    made = data["machine"]
    versions = (
        f"JAX {made['jax']}, optax {made['optax']}, PyTorch {made['torch']}, on {made['device']}"
    )
    parts = [machine_text(made, versions)]
    parts += [_model_table(GPTS[name], model) for name, model in data["models"].items()]
    parts.append(ratio_table(data["ratios"]))
    return "\n\n".join(parts) + "\n"


def _model_table(gpt: Gpt, model: dict[str, Any]) -> str:
    head = (
        f"**{gpt.name}**: {gpt.layers} layers, {gpt.width} wide, {gpt.heads} heads; a step is "
        f"{gpt.batch} windows of {gpt.window} characters."
    )
    rows = [
        [
            who,
            f"{each['steps_per_second']:,.2f}",
            f"{each['steps_per_second'] * model['tokens']:,.0f}",
            "" if each["of_jax"] is None else f"{each['of_jax']:.2f}",
            f"{each['first_step_seconds']:.1f}",
            size_text(each["peak_bytes"]),
            f"{each['losses'][0]:.4f} … {each['losses'][-1]:.4f}",
        ]
        for who, each in model["contenders"].items()
    ]
    rows += [[who, why, "", "", "", "", ""] for who, why in model["unavailable"].items()]
    columns = ["who", "steps/s", "tokens/s", "of JAX's", "first step s", "memory", "losses"]
    return head + "\n\n" + table(columns, rows)
