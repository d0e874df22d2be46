"""A terminal that a test can look at: enough of one for a display that redraws its last lines."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import termios
import threading
import time
from collections.abc import Callable
from typing import TextIO

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]")


class Screen:
    """Lines of characters and a cursor; where it becomes narrower, lines are broken anew."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.cursor_shown = True
        self.hidden = 0
        # Each row, and whether the one after it is of the same line.
        self._rows: list[tuple[str, bool]] = [("", False)]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        for token in _TOKEN.finditer(text):
            count, command = token[1], token[2]
            if command == "A":
                self._row = max(0, self._row - int(count or 1))
            elif command == "K":
                assert count == "2"
                self._rows[self._row] = ("", False)
            elif command in ("h", "l"):
                assert count == "?25"
                self.cursor_shown = command == "h"
                self.hidden += command == "l"
            elif command is not None:
                assert command == "m", token[0]
            elif token[0] == "\r":
                self._column = 0
            elif token[0] == "\n":
                self._next_row()
            else:
                self._put(token[0])

    def resize(self, width: int) -> None:
        assert not any(text for text, _ in self._rows[self._row + 1 :])
        del self._rows[self._row + 1 :]
        lines, rest = [], ""
        for text, broken in self._rows:
            rest += text
            if not broken:
                lines.append(rest)
                rest = ""
        self.width = width
        self._rows = []
        for line in lines:
            pieces = [line[at : at + width] for at in range(0, len(line), width)] or [""]
            self._rows += [(piece, piece is not pieces[-1]) for piece in pieces]
        self._row = len(self._rows) - 1
        self._column = len(self._rows[-1][0])

    def line(self, row: int) -> str:
        """A row, counted from the end where it is negative; empty where there is none."""
        lines = self.lines
        return lines[row] if -len(lines) <= row < len(lines) else ""

    @property
    def lines(self) -> list[str]:
        """What stands there, without the empty rows at the end."""
        return "\n".join(text.rstrip() for text, _ in self._rows).rstrip("\n").split("\n")

    def _put(self, character: str) -> None:
        if self._column == self.width:
            self._rows[self._row] = (self._rows[self._row][0], True)
            self._next_row()
            self._column = 0
        text, broken = self._rows[self._row]
        text = text.ljust(self._column)
        self._rows[self._row] = (
            text[: self._column] + character + text[self._column + 1 :],
            broken,
        )
        self._column += 1

    def _next_row(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append(("", False))


class Terminal:
    """A pseudo-terminal: `stream` writes to it, and `screen` is what a person sees."""

    def __init__(self, width: int = 100, height: int = 24) -> None:
        self._master, self.slave = pty.openpty()
        self._set_size(width, height)
        self.screen = Screen(width)
        self.stream: TextIO = os.fdopen(os.dup(self.slave), "w", encoding="utf-8")
        self.text = ""
        self._height = height
        self._lock = threading.Lock()
        self._rest = b""
        self._reader = threading.Thread(target=self._keep_reading, daemon=True)
        self._reader.start()

    def resize(self, width: int) -> None:
        """Between two redraws, as a person who is slower than they are does."""
        with self._lock:
            while self._read(0.02):
                pass
            self._set_size(width, self._height)
            self.screen.resize(width)

    def wait_for(self, holds: Callable[[Screen], bool], seconds: float = 20) -> None:
        """Until the screen shows what is waited for."""
        end = time.monotonic() + seconds
        while True:
            with self._lock:
                if holds(self.screen):
                    return
                shown = "\n".join(self.screen.lines)
            assert time.monotonic() < end, shown
            time.sleep(0.01)

    def hang_up(self) -> None:
        """As a connection does that is lost: nothing can be written any more."""
        with self._lock:
            os.close(self._master)
            self._master = -1

    def close(self) -> None:
        """To be called when nothing writes any more; then all is on the screen."""
        with contextlib.suppress(OSError):
            self.stream.close()
        os.close(self.slave)
        self._reader.join(20)
        if self._master >= 0:
            os.close(self._master)

    def _set_size(self, width: int, height: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def _keep_reading(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                select.select([self._master], [], [], 0.1)
                with self._lock:
                    self._read(0)

    def _read(self, seconds: float) -> bool:
        """Show what was written; False if nothing was for some time."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        self._rest += os.read(self._master, 1 << 16)
        # A character or an escape sequence may be cut in two.
        if (text := _decoded(self._rest)) is not None:
            self._rest = b""
            self.text += text
            self.screen.feed(text)
        return True


def _decoded(data: bytes) -> str | None:
    """The text; None where its end is cut off."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if re.search(r"\x1b(\[[?0-9;]*)?$", text) else text
