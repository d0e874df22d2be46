"""`metrics.jsonl`, the log beside a run's checkpoints: written while the run goes on, and read."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.pace import Pace
from sexpgpu.tools.train.record import TRAIN, Record, read_lines, read_record, write_record
from sexpgpu.tools.train.scalars import is_ready, read
from sexpgpu.tools.train.sink import LocalFile, Sink, StoredFile

LOG = "metrics.jsonl"

_WRITE_SECONDS = 1.0
_PENDING_LIMIT = 512

_Clock: TypeAlias = Callable[[], float]


def read_metrics(place: Location | str) -> list[Record]:
    """What a run measured, in the order of its steps.

    `place` is where its checkpoints are, or the log itself (`….jsonl`).  A last line that a kill
    cut off is left out.  Raises E-FILE-001 where there is no log, E-JSON-001 at a line that is no
    record, and what the location raises.
    """
    location = Location.parse(place) if isinstance(place, str) else place
    log = location if location.name.endswith(".jsonl") else location / LOG
    try:
        return [record for record, _ in _records(log)]
    except FileNotFoundError:
        raise SexpgpuError(
            "E-FILE-001",
            "there is no log of a run's metrics",
            place=str(log),
            help=f"a run writes {LOG} beside its checkpoints",
        ) from None


class MetricsLog:
    """The log of a run that goes on.

    Values may be on a device: a line is written when they are there, a second later at the latest
    that a step comes, so that no step waits for its numbers.  Every line is whole or absent,
    however the run ends.
    """

    def __init__(self, sink: Sink, kept: _Kept, records_per_step: int, clock: _Clock) -> None:
        self._sink = sink
        self._kept = kept
        self._records_per_step = records_per_step
        self._pace = Pace(clock)
        self._clock = clock
        self._began = clock() - kept.seconds
        self._written = clock()
        self._pending: deque[tuple[int, str, float, Mapping[str, Any]]] = deque()

    @classmethod
    def open(
        cls,
        location: Location,
        step: int,
        *,
        records_per_step: int = 0,
        clock: _Clock = time.monotonic,
    ) -> MetricsLog:
        """The log in the directory `location`, for a run that goes on after `step`.

        Lines after `step` are dropped, for they come again; with step 0 the log begins anew.
        Where `records_per_step` is given, lines of training say how many records a second are.
        Raises E-FILE-001 or E-LOC-002 where the log cannot be written, and E-JSON-001 where what
        is there is no log.
        """
        location.make_directory()
        log = location / LOG
        kept = _what_stays(log, step)
        sink = LocalFile(log, kept.size) if log.is_local else StoredFile(log, kept.size)
        return cls(sink, kept, records_per_step, clock)

    @property
    def seconds(self) -> float:
        """How long the run has been going on, those parts of it included that it resumed."""
        return self._clock() - self._began

    def write(self, step: int, kind: str, values: Mapping[str, Any]) -> None:
        """Add a line: `values` are numbers or scalars on a device, by name.

        What the log has of the step that was resumed from is not told twice.
        """
        if (step, kind) in self._kept.told:
            return
        if kind != TRAIN:
            self._pace.pause()
        elif self._records_per_step:
            self._pace.reach(step)
            if (rate := self._pace.steps_per_second(step)) is not None:
                values = {**values, "records_per_second": round(rate * self._records_per_step, 3)}
        self._pending.append((step, kind, self.seconds, values))
        if len(self._pending) >= _PENDING_LIMIT:
            self._drain(wait=True)
        elif self._clock() - self._written >= _WRITE_SECONDS:
            self._drain(wait=False)

    def sync(self) -> None:
        """Put every line where it stays: on the disk, or in the object store.

        To be called before a checkpoint is written, which then finds its steps in the log.
        """
        self._drain(wait=True)
        self._sink.sync()
        self._pace.rest()

    def close(self) -> None:
        """Write what is left, and let go of the file."""
        try:
            self.sync()
        finally:
            self._sink.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        # What ended the run is what is told, and not that its last numbers failed as well.
        with contextlib.suppress(Exception):
            self._drain(wait=False)
            self._sink.sync()
        self._sink.close()

    def _drain(self, *, wait: bool) -> None:
        """Write the lines whose values are there; all of them where it may `wait` for values."""
        lines = []
        while self._pending:
            step, kind, seconds, values = self._pending[0]
            if not wait and not is_ready(values):
                break
            lines.append(write_record(Record(step, kind, seconds, read(values))))
            self._pending.popleft()
        self._written = self._clock()
        if lines:
            self._sink.append(b"".join(lines))


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a resumed run keeps of a log: how many bytes, how long the run had been going on then,
    and of which kinds are the lines of the step that it goes on after."""

    size: int = 0
    seconds: float = 0.0
    told: frozenset[tuple[int, str]] = frozenset()


def _what_stays(log: Location, step: int) -> _Kept:
    """What a run that goes on after `step` keeps of the log."""
    kept = _Kept()
    if step == 0:
        return kept
    try:
        for record, size in _records(log, through=step):
            if record.step > step:
                break
            told = {(step, record.kind)} if record.step == step else frozenset()
            kept = _Kept(kept.size + size, record.time, kept.told | told)
    except FileNotFoundError:
        pass
    return kept


def _records(log: Location, through: int | None = None) -> Iterator[tuple[Record, int]]:
    """The records of a log, each with how many bytes its line has.

    After a record of the step `through`, a line that is none ends the log: a machine that lost its
    power may leave anything behind what was last put on the disk.
    """
    reached = False
    with log.reading() as file:
        for number, line in enumerate(read_lines(file, str(log)), 1):
            try:
                record = read_record(line[:-1], f"{log}, line {number}")
            except SexpgpuError:
                if reached:
                    return
                raise
            reached = reached or record.step == through
            yield record, len(line)
