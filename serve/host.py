"""From an operand to a running server: open, load, probe, listen, serve, stop."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec

from sexpgpu.serve.engine import Engine
from sexpgpu.serve.hosted import Hosted, Shaping, open_operand
from sexpgpu.serve.probe import BUDGET, Plan, probe
from sexpgpu.serve.protocol import frame
from sexpgpu.serve.session import Device, choose_device, open_session
from sexpgpu.serve.verdict import probe_once

DEFAULT_BATCH = 8
#: Of the time that loading took, so much more may the probe take.
_PROBE_SHARE = 0.2
#: And so much where it was probed before, and these seconds at least.
_AGAIN_SHARE = 0.05
_AGAIN_LEAST = 0.001


class Loaded(msgspec.Struct):
    """A model that was loaded and probed."""

    hosted: Hosted
    engine: Engine
    plan: Plan
    device: Device


def load_operand(
    operand: str,
    shaping: Shaping,
    *,
    device: str = "auto",
    batch: int = DEFAULT_BATCH,
    threads: int = 1,
) -> Loaded:
    """Opens, loads and probes a model: what comes back answers calls.

    `batch` is how many calls may run together.
    """
    start = time.perf_counter()
    chosen = choose_device(device)
    hosted = open_operand(operand, shaping)
    session = open_session(hosted, chosen, threads)
    hosted.check_unchanged()
    limit = 1 if hosted.obstacle else batch
    # Where threads part a tensor depends on its size, and so do the tails of vectors.
    hosted.doubtful = hosted.doubtful or threads > 1
    pin = None
    if chosen.kind == "cuda":
        from sexpgpu.serve.cuda import pinning

        pin = pinning(chosen.index)
    # One thread is the calling one: what else the machine does is no part of what a run takes.
    alone = chosen.kind == "cpu" and threads == 1
    engine = Engine(session, hosted, limit, pin, time.thread_time if alone else time.perf_counter)
    taken = time.perf_counter() - start
    budget = max(BUDGET, _PROBE_SHARE * taken)
    if chosen.kind == "cpu":
        again = max(_AGAIN_LEAST, _AGAIN_SHARE * taken)
        plan = probe_once(engine, threads, budget, again)
    else:
        plan = probe(engine, budget)
    if plan.limit < limit:
        engine = Engine(session, hosted, plan.limit, pin)
    return Loaded(hosted, engine, plan, chosen)


def greeting(loaded: Loaded) -> bytes:
    """The frame that a client reads on connecting."""
    return frame(json.dumps(describe(loaded)).encode())


def describe(loaded: Loaded) -> dict[str, Any]:
    """What the greeting says: the model, its inputs and outputs, and how it is run."""
    hosted = loaded.hosted
    about: dict[str, Any] = {
        "checkpoint": hosted.checkpoint,
        "step": hosted.step,
        "slug": hosted.slug,
        "precision": hosted.precision,
        "inputs": [spec.describe() for spec in hosted.inputs],
        "outputs": [spec.describe() for spec in hosted.outputs],
        "device": str(loaded.device),
        "batch": {
            "limit": loaded.plan.limit,
            "sizes": list(loaded.plan.sizes),
            "padded": loaded.plan.padded,
        },
    }
    if hosted.obstacle or loaded.plan.note:
        about["batch"]["why_one"] = hosted.obstacle or loaded.plan.note
    return about
