"""Progress as lines, for logs, and for terminals that can do no more."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, TextIO

from sexpgpu.tools.train.course import Course
from sexpgpu.tools.train.figures import printable, values_text
from sexpgpu.tools.train.progress import Progress
from sexpgpu.tools.train.scalars import Number, Readings, read

_SECONDS = 5.0
_SECONDS_MOST = 60.0
_SHARE = 0.05


class LineProgress(Progress):
    """The first step and the last, one every few seconds, every evaluation and checkpoint.

    The longer a run is, the rarer its lines.  Programs may read them: they begin with `step`,
    `evaluation at step` and `saved step`.
    """

    def __init__(self, stream: TextIO, course: Course) -> None:
        self._stream = stream
        self._course = course
        self._readings = Readings()
        self._due = 0.0
        self._began = False
        self._gone = False
        self._say(course.opening)

    def step(self, step: int, values: Mapping[str, Any]) -> None:
        self._course.reach(step)
        self._readings.add(step, values)
        at_end = not self._began or step >= self._course.total
        if at_end:
            self._began = True
            read(values)
        if at_end or self._course.clock() >= self._due:
            self._show_ready()

    def evaluated(self, step: int, values: Mapping[str, Any]) -> None:
        self._course.pause()
        self._say(f"evaluation at step {step}: {values_text(read(values))}")

    def saved(self, step: int, place: object) -> None:
        self._course.pause()
        self._say(f"saved step {step}: {printable(str(place))}")

    def note(self, text: str) -> None:
        self._say("\n".join(map(printable, text.split("\n"))))

    def close(self) -> None:
        # The device may have failed, which whoever uses it tells better.
        with contextlib.suppress(Exception):
            self._show_ready()

    def _show_ready(self) -> None:
        for step, numbers in self._readings.take(1):
            self._show(step, numbers)

    def _show(self, step: int, numbers: Mapping[str, Number]) -> None:
        course = self._course
        parts = (values_text(numbers), course.speed, course.left)
        self._say(f"step {step}/{course.total}: {', '.join(part for part in parts if part)}")
        pause = min(max(_SECONDS, course.seconds * _SHARE), _SECONDS_MOST)
        self._due = course.clock() + pause

    def _say(self, text: str) -> None:
        if self._gone:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody reads any more, or the stream was closed: the run goes on.
            self._gone = True
