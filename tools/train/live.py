"""Progress as a live display of a few lines, which rich draws at the end of a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from rich.console import Console, ConsoleDimensions
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from sexpgpu.tools.train.course import Course
from sexpgpu.tools.train.figures import printable
from sexpgpu.tools.train.panel import Panel, draw
from sexpgpu.tools.train.progress import Progress
from sexpgpu.tools.train.scalars import Readings, read

_SECONDS = 0.1
_SECONDS_MOST = 1.0
_SHARE = 0.005
"""Of a processor's time, which drawing may take."""
_READ_AT_ONCE = 16


def terminal_of(stream: TextIO) -> Console | None:
    """The terminal that `stream` writes to; None where it cannot show a panel."""
    console = Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
    simple = console.is_dumb_terminal or console.legacy_windows
    return None if simple or not console.encoding.startswith("utf") else console


class LiveProgress(Progress):
    """A panel at the end of the terminal, drawn by a thread of its own.

    A step only says that it is done.  The cursor is never hidden, so that a run that is killed
    leaves the terminal as it was.
    """

    def __init__(self, console: Console, course: Course) -> None:
        self._console = console
        self._panel = Panel(course, styled=console.color_system is not None)
        self._readings = Readings()
        self._size = _size_of(console)
        self._widths: list[int] = []
        self._live = Live(
            console=console,
            get_renderable=self._draw,
            auto_refresh=False,
            # What goes elsewhere must not come out here.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=console.file is sys.stderr,
            vertical_overflow="crop",
        )
        self._gone = False
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_drawing, name="progress", daemon=True)
        with self._using():
            # Together, so that the terminal never sees the first without the second.
            with console:
                self._live.start()
                console.show_cursor(True)
            self._refresh()
        self._thread.start()

    def step(self, step: int, values: Mapping[str, Any]) -> None:
        self._panel.course.reach(step)
        self._readings.add(step, values)

    def evaluated(self, step: int, values: Mapping[str, Any]) -> None:
        self._panel.course.pause()
        self._panel.evaluated(step, read(values))
        self._show()

    def saved(self, step: int, place: object) -> None:
        self._panel.course.pause()
        self._panel.saved = step
        self._show()

    def note(self, text: str) -> None:
        shown = Text("\n".join(map(printable, text.split("\n"))))
        with self._using():
            self._console.print(shown, soft_wrap=True)

    def close(self) -> None:
        if self._stopped.is_set():
            return
        self._stopped.set()
        try:
            self._thread.join()
        finally:
            self._panel.over = True
            # Also where the terminal is gone: what was redirected comes back.
            with self._lock, contextlib.suppress(OSError, ValueError):
                self._live.stop()

    def _keep_drawing(self) -> None:
        pause = _SECONDS
        while not self._stopped.wait(pause) and not self._gone:
            began = time.thread_time()
            self._show()
            cost = time.thread_time() - began
            pause = min(max(_SECONDS, cost / _SHARE), _SECONDS_MOST)

    def _show(self) -> None:
        with self._using():
            self._refresh()

    def _refresh(self) -> None:
        """Draw the panel in the place of the one before, however wide the terminal is now."""
        size = _size_of(self._console)
        with self._console:
            if size.width < self._size.width:
                # Most terminals break lines that do not fit any more into several; those that cut
                # them off lose a line or two of what stood above.
                broken = sum(max(0, width - 1) // size.width for width in self._widths)
                self._console.control(_erase_lines(broken))
            self._size = self._console.size = size
            self._live.refresh()

    def _draw(self) -> Text:
        # A device that fails is told by whoever waits for it.
        with contextlib.suppress(Exception):
            for step, numbers in self._readings.take(_READ_AT_ONCE):
                self._panel.measured(step, numbers)
        # A line that fills the last column makes some terminals begin another.
        lines = draw(self._panel, self._size.width - 1, self._size.height - 1)
        self._widths = [line.cell_len for line in lines]
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """A terminal that goes away ends the display, and nothing else."""
        with self._lock:
            try:
                yield
            except (OSError, ValueError):
                self._gone = True


def _size_of(console: Console) -> ConsoleDimensions:
    """The terminal's size now, whatever $COLUMNS says."""
    try:
        columns, lines = os.get_terminal_size(console.file.fileno())
    except (OSError, ValueError):
        return console.size
    # One that does not know its size says 0.
    return ConsoleDimensions(columns or 80, lines or 24)


def _erase_lines(count: int) -> Control:
    """Erases the cursor's line and others above it, and goes to the start of the last."""
    line = (ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)
    return Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *line * count)
