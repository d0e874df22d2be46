"""From an operand to a running server: open, load, probe, listen, serve, stop."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sexpgpu.serve.endpoint import Endpoint
from sexpgpu.serve.engine import Engine
from sexpgpu.serve.hosted import Hosted, Shaping, open_operand
from sexpgpu.serve.probe import Plan, probe
from sexpgpu.serve.protocol import frame
from sexpgpu.serve.session import Device, choose_device, open_session

DEFAULT_BATCH = 8


@dataclass
class Loaded:
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
    chosen = choose_device(device)
    hosted = open_operand(operand, shaping)
    session = open_session(hosted, chosen, threads)
    limit = 1 if hosted.obstacle else batch
    engine = Engine(session, hosted, limit)
    plan = probe(engine, candidate_sizes(limit))
    if plan.limit < limit:
        engine = Engine(session, hosted, plan.limit)
    return Loaded(hosted, engine, plan, chosen)


def candidate_sizes(limit: int) -> list[int]:
    """The batch sizes that are probed: all up to 16, then in steps, and the limit itself."""
    sizes = set(range(1, min(limit, 16) + 1)) | {limit}
    sizes |= {size for size in range(16, limit, 8) if size <= 64}
    sizes |= {size for size in (2**k for k in range(6, 20)) if size < limit}
    return sorted(sizes)


def greeting(loaded: Loaded) -> bytes:
    """The frame that a client reads on connecting."""
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
    if hosted.obstacle:
        about["batch"]["why_one"] = hosted.obstacle
    return frame(json.dumps(about).encode())


def endpoint(path: str, mode: int) -> Endpoint:
    """The socket's place, checked at once and made when the model answers."""
    return Endpoint(Path(path), mode)
