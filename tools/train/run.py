"""A run from its first step, or the one after its newest checkpoint, to its last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import jax
import jax.numpy as jnp
import numpy as np

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.initial import first_value
from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.dataset import Dataset
from sexpgpu.tools.train.data.datasets import open_dataset
from sexpgpu.tools.train.data.feed import Feed
from sexpgpu.tools.train.diagnosis import find_fault
from sexpgpu.tools.train.engine import (
    Arrays,
    State,
    as_master,
    declared,
    first_state,
    make_evaluation,
    make_step,
    step_key,
)
from sexpgpu.tools.train.evaluate import evaluate
from sexpgpu.tools.train.metrics import MetricsLog
from sexpgpu.tools.train.optimizer import make_optimizer
from sexpgpu.tools.train.plan import Plan
from sexpgpu.tools.train.progress import Progress, open_progress
from sexpgpu.tools.train.scalars import read
from sexpgpu.tools.train.schedule import make_schedule
from sexpgpu.tools.train.store import RunStore
from sexpgpu.tools.train.watch import Taken, Watch

Mode = Literal["auto", "resume", "fresh"]


@dataclass(frozen=True)
class Outcome:
    """Where a run ended: its newest checkpoint, that one's step, and the last numbers told."""

    place: str
    step: int
    metrics: Mapping[str, float]
    evaluation: Mapping[str, float]


class TrainingRun:
    """A plan carried out at a location.

    `stop`, asked after every step, says whether to end with a checkpoint before the last step.
    """

    def __init__(
        self, plan: Plan, location: Location, stream: TextIO, stop: Callable[[], bool]
    ) -> None:
        self._plan = plan
        self._location = location
        self._stream = stream
        self._stop = stop
        run = plan.run
        self._data = open_dataset(run.train)
        self._eval_data: Dataset | None = open_dataset(run.eval) if run.eval else None
        rate = make_schedule(run.schedule, run.steps, run.optimizer.options["lr"])
        self._optimizer = make_optimizer(run)
        self._step = make_step(plan.training, run, self._optimizer, rate)
        self._evaluation = make_evaluation(plan.evaluation, run.precision, run.seed)
        self._evaluated: dict[str, float] = {}
        self._evaluated_at = -1
        self._place = ""

    def run(self, mode: Mode = "auto") -> Outcome:
        """Trains, and writes checkpoints on the way.

        Raises E-RUN-002 to -004 where the location holds what cannot be gone on with, E-CKPT-001
        for `resume` without a checkpoint, E-RUN-006 and -007 where a step goes wrong, and what
        reading data and writing checkpoints raise.
        """
        plan, run = self._plan, self._plan.run
        with ExitStack() as stack:
            store = RunStore(plan.program, self._location, plan.alone, self._data.fingerprint())
            stack.callback(store.close)
            self._rest = {path: first_value(p, run.seed) for path, p in plan.rest.items()}
            state, start = self._begin(store, mode)
            progress = stack.enter_context(self._open_progress(start))
            if start >= run.steps:
                progress.note(f"all {run.steps} steps were taken before: {self._place}")
            elif start:
                progress.note(f"going on after step {start}: {self._place}")
            log = MetricsLog.open(
                self._location, start, records_per_step=run.batch * run.accumulate
            )
            stack.enter_context(log)
            feed = Feed(self._data, run.batch * run.accumulate, run.seed, start, steps=run.steps)
            stack.callback(feed.close)
            return self._outcome(self._train(state, start, feed, store, progress, log))

    def _begin(self, store: RunStore, mode: Mode) -> tuple[State, int]:
        """The state to go on from, and its step."""
        if mode == "fresh":
            store.begin_anew()
        stored = None if mode == "fresh" else store.newest()
        if stored is None and mode == "resume":
            raise SexpgpuError(
                "E-CKPT-001",
                f"there is no checkpoint at {self._location} to go on from",
                place=str(self._location),
                help="without --resume a run begins where there is none",
            )
        if stored is None:
            return self._first_state(), 0
        store.check_same(stored)
        template = jax.eval_shape(self._first_state)
        state = store.restore(stored, template)
        self._place = str(stored.location)
        return state, stored.document.step

    def _first_state(self) -> State:
        plan = self._plan
        parameters = {
            path: jnp.asarray(as_master(p, first_value(p, plan.run.seed)))
            for path, p in plan.trained.items()
        }
        return first_state(plan.training, parameters, self._optimizer, plan.run)

    def _train(
        self,
        state: State,
        start: int,
        feed: Feed,
        store: RunStore,
        progress: Progress,
        log: MetricsLog,
    ) -> int:
        plan, run, watch = self._plan, self._plan.run, Watch()
        names = {value.name for value in plan.training.graph.inputs}
        rest = self._on_device(plan.training.graph.weights)
        step = start
        self._last: Mapping[str, Any] = {}
        while step < run.steps:
            records = {n: jax.device_put(a) for n, a in next(feed).items() if n in names}
            state, told = self._step(state, rest, records, np.uint32(step))
            broken = watch.add(Taken(step, records, told))
            step += 1
            self._last = told.metrics
            if broken is None:
                progress.step(step, told.metrics)
                log.write(step, "train", told.metrics)
            ending = step == run.steps or self._stop()
            evaluating = self._is_due(step, plan.evaluate_every, step == run.steps)
            saving = ending or step % plan.checkpoint_every == 0
            if broken is None and (evaluating or saving):
                broken = watch.finish()
            if broken is not None:
                raise self._fault(broken, state, rest)
            if evaluating:
                self._evaluate(state, step, progress, log)
            if saving:
                self._save(store, state, step, progress, log)
            if ending:
                break
        return step

    def _is_due(self, step: int, every: int | None, last: bool) -> bool:
        return every is not None and (last or step % every == 0)

    def _evaluate(self, state: State, step: int, progress: Progress, log: MetricsLog) -> None:
        run = self._plan.run
        assert self._eval_data is not None
        weights = {**state.parameters, **state.averages}
        weights |= self._on_device(self._plan.evaluation.graph.weights)
        found = evaluate(
            self._evaluation, weights, self._eval_data, run.batch, run.evaluate_batches
        )
        self._evaluated, self._evaluated_at = found, step
        progress.evaluated(step, found)
        log.write(step, "evaluation", found)

    def _save(
        self, store: RunStore, state: State, step: int, progress: Progress, log: MetricsLog
    ) -> None:
        log.sync()
        self._place = str(store.save(step, state, self._rest))
        progress.saved(step, self._place)

    def _on_device(self, weights: Mapping[str, Value]) -> Arrays:
        """Those of these parameters that are not trained, as the graph has them."""
        return {
            path: jnp.asarray(self._rest[path].astype(value.type.dtype.numpy, copy=False))
            for path, value in weights.items()
            if path in self._rest
        }

    def _open_progress(self, start: int) -> Progress:
        run, tokens = self._plan.run, self._data.tokens
        return open_progress(
            self._stream,
            total=run.steps,
            start=start,
            unit="records" if tokens is None else "tokens",
            per_step=run.batch * run.accumulate * (tokens or 1),
            title=self._plan.program.slug,
        )

    def _fault(self, broken: Taken, state: State, rest: Arrays) -> SexpgpuError:
        """What went wrong at a step, whose state nothing has changed since."""
        number, told = broken.number + 1, broken.told
        place = f"step {number}"
        kept = f"the newest checkpoint is {self._place}" if self._place else "no checkpoint yet"
        for name, held in told.guards.items():
            if not bool(held):
                return SexpgpuError(
                    "E-RUN-007",
                    f"the guard `{name}` is broken at step {number}",
                    span=self._plan.training.guards[name],
                    came=", ".join(f"{n} {float(v):.6g}" for n, v in told.metrics.items()),
                    notes=[kept],
                )
        loss = float(told.metrics["loss"])
        error = SexpgpuError(
            "E-RUN-006",
            f"the loss is {loss} at step {number}",
            place=place,
            help="lower the rate, clip the gradients with `:clip`, or warm the rate up",
            notes=[kept],
        )
        plan, run = self._plan, self._plan.run
        weights = {**rest, **declared(plan.training, state.parameters)}
        for part in range(run.accumulate):
            part_records = {
                name: array[part * run.batch : (part + 1) * run.batch]
                for name, array in broken.records.items()
            }
            key = step_key(run, broken.number, part)
            fault = find_fault(plan.training.graph, part_records, weights, run.batch, key)
            if fault is None:
                continue
            if fault.node is None:
                error.came = f"{fault.value} in the {fault.name}"
            else:
                error.came = f"{fault.value}, first made by `{fault.node.operation.name}`"
                if fault.node.position is not None:
                    error.place = f"{fault.node.position}, {place}"
            break
        return error

    def _outcome(self, step: int) -> Outcome:
        metrics = {name: float(value) for name, value in read(self._last).items()}
        evaluation = self._evaluated if self._evaluated_at == step else {}
        return Outcome(self._place, step, metrics, evaluation)
