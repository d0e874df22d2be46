"""The one exception that reaches a user, and how it is shown.

An error owns its code, its exit status and its rendering; whoever raises it supplies what is wrong,
where, what came, what was expected and how to mend it.  Every code stands in :mod:`.codes`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sexpgpu.schemas.codes import CODES


class Source:
    """A named text that spans point into.

    `library` says that it is part of the language, and none of the user's own files.
    """

    __slots__ = ("_lines", "library", "name", "text")

    def __init__(self, name: str, text: str, library: bool = False) -> None:
        self.name = name
        self.text = text
        self.library = library
        self._lines: list[str] = []

    def line(self, number: int) -> str:
        """Line `number`, counted from 1, without its end; empty when the text has no such line."""
        if not self._lines:
            self._lines.extend(self.text.split("\n"))
        return self._lines[number - 1].rstrip("\r") if 0 < number <= len(self._lines) else ""


class Span(msgspec.Struct, frozen=True):
    """A place in a source: line and column count from 1, width in characters (on that line)."""

    source: Source
    line: int
    column: int
    width: int = 1

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


class Frame(msgspec.Struct, frozen=True):
    """One entry of the program's own call stack: what was called, and where from."""

    name: str
    span: Span | None


class SexpgpuError(Exception):
    """An error of a user's making or of their machine's, shown without a traceback.

    `place` says where when there is no span: a path, or a path into a document (`$.nodes[3]`).
    `frames` is the program's call stack, innermost first.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        span: Span | None = None,
        place: str | None = None,
        came: str | None = None,
        expected: str | None = None,
        help: str | None = None,
        notes: Iterable[str] = (),
        exit_code: int = 1,
    ) -> None:
        if code not in CODES:
            raise LookupError(f"error code {code} is not in the table of codes")
        super().__init__(message)
        self.code = code
        self.message = message
        self.span = span
        self.place = place
        self.came = came
        self.expected = expected
        self.help = help
        self.notes = list(notes)
        self.frames: list[Frame] = []
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"error[{self.code}]: {self.message}"

    @property
    def user_span(self) -> Span | None:
        """Where the user can mend it: the innermost place in a file of their own.

        What goes wrong inside a layer of the language is shown at the call of that layer.
        """
        spans = [self.span, *(frame.span for frame in self.frames)]
        own = (span for span in spans if span is not None and not span.source.library)
        return next(own, self.span)

    def render(self) -> str:
        """The whole message, several lines, as it is printed on stderr."""
        lines = [str(self)]
        gutter = " "
        span, notes = self.user_span, self.notes
        if span is not None:
            number = str(span.line)
            gutter = " " * (len(number) + 1)
            text, column = _window(span.source.line(span.line), span.column)
            width = max(1, min(span.width, len(text) - column + 1))
            lines.append(f"{gutter[1:]}--> {span}")
            lines.append(f"{gutter}|")
            lines.append(f"{number} | {text}")
            lines.append(f"{gutter}| {' ' * (column - 1)}{'^' * width}")
        elif self.place is not None:
            lines.append(f"{gutter}--> {self.place}")
        if self.span is not span and self.span is not None:
            notes = [_inside(self.span, self.frames), *notes]
        for label, value in (("came", self.came), ("expected", self.expected), ("help", self.help)):
            if value is not None:
                lines.append(f"{gutter}= {label}: {_indent(value, len(gutter) + len(label) + 4)}")
        lines.extend(f"{gutter}= note: {_indent(note, len(gutter) + 8)}" for note in notes)
        lines.extend(_stack(self.frames, gutter))
        return "\n".join(lines)

    def as_data(self) -> dict[str, object]:
        """The same as plain data, for `--json`."""
        data: dict[str, object] = {"code": self.code, "message": self.message}
        if (span := self.user_span) is not None:
            data |= {"file": span.source.name, "line": span.line, "column": span.column}
        if self.span is not None and self.span is not span:
            data["inside"] = str(self.span)
        if self.place is not None:
            data["place"] = self.place
        for name in ("came", "expected", "help"):
            if getattr(self, name) is not None:
                data[name] = getattr(self, name)
        if self.notes:
            data["notes"] = self.notes
        if self.frames:
            data["stack"] = [
                {"name": frame.name, "at": str(frame.span) if frame.span else None}
                for frame in self.frames
            ]
        return data


_LINE_LIMIT = 160
_STACK_LIMIT = 12
_SNIPPET_LIMIT = 60


def _inside(span: Span, frames: list[Frame]) -> str:
    """Where in the language itself it went wrong: "in `linear`, prelude.sx:8:13: (matmul …)"."""
    start = span.column - 1
    text = span.source.line(span.line)[start : start + span.width]
    shown = text if len(text) <= _SNIPPET_LIMIT else text[:_SNIPPET_LIMIT] + "…"
    return f"it went wrong in `{frames[0].name}`, at {span}: {shown}"


def _window(text: str, column: int) -> tuple[str, int]:
    """The part of a long line that the column is in, and the column there."""
    text = text.replace("\t", " ")
    if len(text) <= _LINE_LIMIT:
        return text, column
    start = max(0, column - 1 - _LINE_LIMIT // 2)
    return text[start : start + _LINE_LIMIT], column - start


def _indent(text: str, width: int) -> str:
    return text.replace("\n", "\n" + " " * width)


def _stack(frames: list[Frame], gutter: str) -> list[str]:
    """The call stack, its middle left out when it is deep."""
    shown = [
        f"{gutter}  in {frame.name}" + (f", called at {frame.span}" if frame.span else "")
        for frame in frames
    ]
    if len(shown) > _STACK_LIMIT:
        half = _STACK_LIMIT // 2
        shown[half:-half] = [f"{gutter}  … {len(shown) - 2 * half} more"]
    return shown
