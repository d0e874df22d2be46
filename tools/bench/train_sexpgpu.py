"""The GPT trained by this project: a contender of `train.py`.

    python -m sexpgpu.tools.bench.train_sexpgpu FOLDER step|run cpu|cuda

`step` is the engine's step alone, given the batches as the others are; `run` all of what
`sexpgpu run` does: the text read and shuffled, the step's outcome watched, its numbers logged and
shown.  `train_turns.py` says what a contender does; FOLDER is what `train_gpt.prepare` wrote.
"""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from sexpgpu.tools.train.device import choose_device

_LOSSES = 5


def main() -> None:
    folder, mode, device = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    choose_device(device)
    if mode == "run":
        _run(folder)
    else:
        _steps(folder)


def _steps(folder: Path) -> None:
    import jax
    import jax.numpy as jnp

    from sexpgpu.tools.train.engine import as_master, first_state, make_step
    from sexpgpu.tools.train.optimizer import make_optimizer
    from sexpgpu.tools.train.plan import make_plan
    from sexpgpu.tools.train.schedule import make_schedule

    plan = make_plan(folder / "gpt.sx", None, None, None)
    run, training = plan.run, plan.training
    batches = np.load(folder / "batches.npy")
    with np.load(folder / "weights.npz") as stored:
        parameters = {
            path: jnp.array(as_master(p, stored[path])) for path, p in plan.trained.items()
        }
    optimizer = make_optimizer(run)
    rate = make_schedule(run.schedule, run.steps, run.optimizer.options["lr"])
    step = make_step(training, run, optimizer, rate)
    state = first_state(training, parameters, optimizer, run)
    taken, losses = 0, list[Any]()
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            records = {"tokens": jax.device_put(batches[taken % len(batches)])}
            state, told = step(state, {}, records, np.uint32(taken))
            taken += 1
            if taken <= _LOSSES:
                losses.append(told.metrics["loss"])
        jax.block_until_ready(state)  # type: ignore[no-untyped-call]
        _say(seconds=time.perf_counter() - begin)
    _say(losses=[float(loss) for loss in losses], device_bytes=_device_bytes())


def _run(folder: Path) -> None:
    import jax

    from sexpgpu.export.storage.location import Location
    from sexpgpu.tools.train.metrics import read_metrics
    from sexpgpu.tools.train.plan import make_plan
    from sexpgpu.tools.train.run import TrainingRun

    left, begin = 0, 0.0

    def next_turn() -> bool:
        """Waits for a turn; whether there is none."""
        nonlocal left, begin
        line = sys.stdin.readline()
        left, begin = int(line or 0), time.perf_counter()
        return not line

    def stop() -> bool:
        nonlocal left
        left -= 1
        if left:
            return False
        # Several steps may be under way.
        jax.block_until_ready(jax.live_arrays())  # type: ignore[no-untyped-call]
        _say(seconds=time.perf_counter() - begin)
        return next_turn()

    location = Location.parse(str(folder / "run"))
    plan = make_plan(folder / "gpt.sx", None, None, None)
    next_turn()
    TrainingRun(plan, location, io.StringIO(), stop).run("fresh")
    losses = [record.values["loss"] for record in read_metrics(location)[:_LOSSES]]
    _say(losses=losses, device_bytes=_device_bytes())


def _device_bytes() -> int:
    """The most that a device of its own had in use; 0 on a CPU."""
    import jax

    return int((jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0))


def _say(**values: object) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
