"""What a person sees of a run: a live display on a terminal, lines elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TextIO

from sexpgpu.tools.train.course import Course, Unit


class Progress(ABC):
    """How far a run is, told to whoever watches.

    Nothing that happens to the terminal ends the run.
    """

    @abstractmethod
    def step(self, step: int, values: Mapping[str, Any]) -> None:
        """`step` is done; `values` are its loss, learning rate and metrics by name.

        They may be scalars that a device still computes: they are read when they are shown, and
        but for the first and the last step only once they are there.
        """

    @abstractmethod
    def evaluated(self, step: int, values: Mapping[str, Any]) -> None:
        """The model of `step` was evaluated."""

    @abstractmethod
    def saved(self, step: int, place: object) -> None:
        """The checkpoint of `step` stands at `place`."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Say something that stays, above what is shown."""

    @abstractmethod
    def close(self) -> None:
        """Show the last that is known, and leave the terminal as it was."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_progress(
    stream: TextIO, *, total: int, start: int, unit: Unit, per_step: int, title: str
) -> Progress:
    """The progress, on `stream`, of a run of `total` steps that goes on after `start`.

    `per_step` is how many tokens or records, as `unit` says, a step takes.  The display is live
    where `stream` is a terminal whose cursor can be moved, and rich is installed.
    """
    # Each of the two is a `Progress`, and imports it from here.
    from sexpgpu.tools.train.lines import LineProgress

    course = Course(total=total, start=start, unit=unit, per_step=per_step, title=title)
    if stream.isatty():
        try:
            from sexpgpu.tools.train.live import LiveProgress, terminal_of
        except ImportError:
            return LineProgress(stream, course)
        if (console := terminal_of(stream)) is not None:
            return LiveProgress(console, course)
    return LineProgress(stream, course)
