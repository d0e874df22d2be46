"""The way that a run takes through its steps, and what is said of it while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from sexpgpu.tools.train.figures import count_text, duration_text, printable
from sexpgpu.tools.train.pace import Pace

Unit: TypeAlias = Literal["tokens", "records"]

_RATES = {"tokens": "tok/s", "records": "records/s"}


class Course:
    """`total` steps, of which this run makes those after `start`, each of `per_step` units."""

    def __init__(
        self,
        *,
        total: int,
        start: int,
        unit: Unit,
        per_step: int,
        title: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self.start = start
        self.unit = unit
        self.per_step = per_step
        self.title = printable(title)
        self.at = start
        self.clock = clock
        self._pace = Pace(clock)
        self._began = clock()

    def reach(self, step: int) -> None:
        """`step` is done."""
        self.at = step
        self._pace.reach(step)

    def pause(self) -> None:
        """What was done since the last step was none: an evaluation, or a checkpoint."""
        self._pace.pause()

    @property
    def seconds(self) -> float:
        """Since the run began, or was resumed."""
        return self.clock() - self._began

    @property
    def opening(self) -> str:
        """`gpt: 1000 steps of 512 tokens, resumed after step 200`."""
        resumed = f", resumed after step {self.start}" if self.start else ""
        return f"{self.title}: {self.total} steps of {self.per_step} {self.unit}{resumed}"

    @property
    def speed(self) -> str:
        """`12.3k tok/s`; empty while it is not known."""
        rate = self._pace.steps_per_second(self.at)
        return "" if rate is None else f"{count_text(rate * self.per_step)} {_RATES[self.unit]}"

    @property
    def left(self) -> str:
        """`1m 20s left`, empty while it is not known; at the end `took 3m 05s`."""
        if self.at >= self.total:
            return f"took {duration_text(self.seconds)}"
        seconds = self._pace.seconds_for(self.total - self.at, self.at)
        return "" if seconds is None else f"{duration_text(seconds)} left"
