"""The verdict of a probe, remembered: the same model on the same machine is not tried anew in full.

What was probed once stays so: the bits of a batch follow from the graph, the weights, ONNX Runtime,
the CPU and the number of threads, and all of these are compared.  Still every size is tried at each
start, as far as a part of the loading time goes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import onnxruntime as ort

from sexpgpu.serve.engine import Engine
from sexpgpu.serve.kept import Kept
from sexpgpu.serve.probe import Plan, probe
from sexpgpu.serve.trial import Trial

#: At least so many records, and as many as a probe in full draws at most.
_RECORDS = 3
_MOST_RECORDS = 64
#: Of the time, what the records' runs alone may take.
_ALONE_SHARE = 0.3


def probe_once(engine: Engine, threads: int, seconds: float, again: float) -> Plan:
    """The plan for an engine on the CPU: probed for about `seconds`, or remembered and tried again
    for about the seconds of `again`."""
    hosted = engine.hosted
    if not hosted.identity:
        return probe(engine, seconds)
    facts = (hosted.identity, threads, engine.limit, ort.__version__, _processor())
    kept = Kept("verdicts", msgspec.msgpack.encode(facts))
    plan = _plan(kept.read())
    if plan is not None and _holds(engine, plan, again):
        return plan
    plan = probe(engine, seconds)
    kept.write(msgspec.msgpack.encode(plan))
    return plan


def _plan(made: bytes | None) -> Plan | None:
    if made is None:
        return None
    try:
        return msgspec.msgpack.decode(made, type=Plan)
    except msgspec.DecodeError:
        return None


def _holds(engine: Engine, plan: Plan, seconds: float) -> bool:
    """Whether the sizes still give the bits of a call alone, as far as it can be tried in time.

    It is also the warm-up: a lone call is run in any case.
    """
    trial = Trial(engine)
    lone = trial.warm_up(seconds)
    if lone is None or plan.padded:
        return True
    sizes, left = [], seconds - lone * _RECORDS
    for size in plan.sizes[1:]:
        left -= lone * size
        if left >= 0:
            sizes.append(size)
    if not sizes:
        return True
    trial.prepare(max(_RECORDS, min(_MOST_RECORDS, int(_ALONE_SHARE * seconds / lone))))
    part = seconds / (len(sizes) * lone)
    return all(trial.same(size, max(1, int(part / size))) for size in sizes)


def _processor() -> str:
    """The CPU's name and what it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        import platform

        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))
