"""How fast a run goes, and how long the rest of it will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_SECONDS_KEPT = 30.0
_SAMPLES_KEPT = 8
_SAMPLE_SECONDS = 0.25


class Pace:
    """How fast a run goes, by when it reached which step.

    It is measured over the last half minute, or the last few steps where they take longer; the
    first step, which compiles, and the pauses between steps are left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()
        self._last = clock()
        self._first: float | None = None
        self._paused = 0.0
        self._resting = False
        self._skipped = 0

    def reach(self, step: int) -> None:
        """The run reached `step`."""
        now = self._clock()
        if self._resting and self._first is not None:
            self._paused += now - self._last
            self._skipped += 1
        self._resting = False
        self._last = now
        if self._first is None:
            self._first = now
        at = now - self._paused
        samples = self._samples
        if samples and at - samples[-1][0] < _SAMPLE_SECONDS:
            return
        samples.append((at, step - self._skipped))
        while len(samples) > _SAMPLES_KEPT and at - samples[0][0] > _SECONDS_KEPT:
            samples.popleft()

    def pause(self) -> None:
        """What was done since the last step, or the last pause, was no step."""
        now = self._clock()
        if self._first is not None:
            self._paused += now - self._last
        self._last = now

    def rest(self) -> None:
        """Something else is done until some time in the next step, which is left out."""
        self._resting = True

    def steps_per_second(self, step: int) -> float | None:
        """The rate at which `step`, the last one, was reached; None before there are two."""
        if not self._samples:
            return None
        began, first = self._samples[0]
        step -= self._skipped
        seconds = self._last - self._paused - began
        return (step - first) / seconds if step > first and seconds > 0 else None

    def seconds_for(self, steps: int, step: int) -> float | None:
        """How long `steps` more will take, with their share of pauses."""
        rate = self.steps_per_second(step)
        if rate is None or self._first is None:
            return None
        gone = self._last - self._first
        share = gone / (gone - self._paused) if gone > self._paused else 1.0
        return steps / rate * share
