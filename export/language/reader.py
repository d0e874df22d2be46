"""Text to data.

One regular expression cuts the text into tokens; an explicit stack holds the lists and prefixes
that are open, so that neither a deep nor a long text can exhaust Python.  Lines and columns are
counted on the way, for every datum.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sexpgpu.export.language.data import Datum, ListDatum, Symbol
from sexpgpu.export.language.words import read_string, read_word
from sexpgpu.schemas.errors import SexpgpuError, Source, Span

SIZE_LIMIT = 4 * 2**20
NESTING_LIMIT = 200

_TOKEN = re.compile(
    r"""
    (?P<space>\s++)
  | (?P<remark>;[^\n]*+)
  | (?P<open>[(\[])
  | (?P<close>[)\]])
  | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
  | (?P<discard>\#;)
  | (?P<comment>\#\|)
  | (?P<quote>')
  | (?P<word>[^\s()\[\]";']++)
  | (?P<torn>")
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"\#\||\|\#")
_CLOSING = {"(": ")", "[": "]"}


def read(data: bytes | str, name: str) -> list[Datum]:
    """The data of a text that is called `name` in messages.

    Errors: E-READ-001 to E-READ-010, and E-VALUE-001 for a number out of range.  Size and encoding
    are checked before anything is read.
    """
    return read_source(decode(data, name))


def decode(data: bytes | str, name: str) -> Source:
    """The text of a program: E-READ-007 over 4 MiB, E-READ-009 when it is not UTF-8."""
    if len(data) > SIZE_LIMIT:
        raise SexpgpuError(
            "E-READ-007",
            "the source is too large",
            place=name,
            came=f"{len(data):,} bytes",
            expected=f"at most {SIZE_LIMIT:,}",
            help="keep numbers in a safetensors or npz file, read by `:load` or a loader",
        )
    if isinstance(data, str):
        return Source(name, data)
    try:
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        # The offset counts from after a byte order mark, where there is one.
        start = error.start + (3 if data.startswith(b"\xef\xbb\xbf") else 0)
        before = data[:start].decode("utf-8-sig")
        column = len(before) - before.rfind("\n")
        raise SexpgpuError(
            "E-READ-009",
            "the source is not UTF-8",
            span=Span(Source(name, data.decode("utf-8-sig", "replace")), _line_of(before), column),
            came=f"the byte 0x{data[start]:02x}",
            help="save the file as UTF-8",
        ) from None


def read_source(source: Source) -> list[Datum]:
    """The data of a source, each with its span."""
    return _Reader(source).read()


def _line_of(text: str) -> int:
    return text.count("\n") + 1


@dataclass(slots=True)
class _Open:
    """A list (`(`, `[`) or a prefix (`'`, `#;`) that waits for its end."""

    mark: str
    span: Span
    items: list[Datum] = field(default_factory=list)


class _Reader:
    """One reading of one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.line = 1
        self.line_start = 0
        self.top: list[Datum] = []
        self.open: list[_Open] = []
        # What tells where a list was left open: the first bracket in column 1 inside a list, and
        # the first line that starts left of the innermost open list.
        self.resumed: Span | None = None
        self.offside: tuple[_Open, Span] | None = None
        # The last word or string: where it stands in the text, and its span.
        self.before: tuple[int, int, Span] | None = None

    def read(self) -> list[Datum]:
        text, position = self.text, 0
        first_of_line = True
        while position < len(text):
            match = _TOKEN.match(text, position)
            # Every character begins some token.
            assert match is not None
            kind, start, position = match.lastgroup, position, match.end()
            if kind == "space":
                first_of_line = self._count_lines(start, position) or first_of_line
                continue
            if kind == "remark":
                continue
            span = Span(self.source, self.line, start - self.line_start + 1, position - start)
            if kind == "comment":
                position = self._skip_comment(position, span)
                self._count_lines(start, position)
                continue
            if first_of_line and self.open:
                self._watch_indentation(span, kind)
            first_of_line = False
            if kind == "word":
                self._part(start, position, span)
                self._add(read_word(match.group(), span))
            elif kind == "open":
                self._push(_Open(match.group(), span))
            elif kind == "close":
                self._close(match.group(), span, position)
            elif kind == "string":
                self._part(start, position, span)
                self._add_string(match.group(), span)
                self._count_lines(start, position)
            elif kind == "torn":
                raise self._torn(span, "string", '`"`')
            else:
                self._push(_Open(match.group(), span))
        if self.open:
            raise self._left_open()
        return self.top

    def _count_lines(self, start: int, end: int) -> bool:
        """Take the line ends between two positions into account; whether there were any."""
        newlines = self.text.count("\n", start, end)
        if newlines:
            self.line += newlines
            self.line_start = self.text.rindex("\n", start, end) + 1
        return newlines > 0

    def _skip_comment(self, position: int, span: Span) -> int:
        """The position after a comment that may hold comments."""
        depth = 1
        while depth:
            edge = _COMMENT_EDGE.search(self.text, position)
            if edge is None:
                raise self._torn(span, "comment", "`|#`")
            depth += 1 if edge.group() == "#|" else -1
            position = edge.end()
        return position

    def _push(self, opened: _Open) -> None:
        if len(self.open) >= NESTING_LIMIT:
            raise SexpgpuError(
                "E-READ-008",
                f"lists are nested more than {NESTING_LIMIT} deep",
                span=opened.span,
                help="name the inner parts with `def`",
            )
        self.open.append(opened)

    def _add(self, datum: Datum) -> None:
        """Give a finished datum to what is open: prefixes first, then a list."""
        while self.open:
            opened = self.open[-1]
            if opened.mark == "#;":
                self.open.pop()
                return
            if opened.mark != "'":
                opened.items.append(datum)
                return
            self.open.pop()
            quote = Symbol("quote", opened.span)
            datum = ListDatum((quote, datum), "(", self._reaching(opened.span, datum.span))
        self.top.append(datum)
        self.resumed = self.offside = None

    def _reaching(self, start: Span, end: Span | None) -> Span:
        """From a prefix to the end of its datum, where that is on the same line."""
        if end is None or end.line != start.line:
            return start
        return Span(start.source, start.line, start.column, end.column + end.width - start.column)

    def _add_string(self, token: str, span: Span) -> None:
        first, _, more = token.partition("\n")
        if more:
            span = Span(span.source, span.line, span.column, len(first))
        self._add(read_string(token, span))

    def _close(self, mark: str, span: Span, position: int) -> None:
        if not self.open:
            raise SexpgpuError(
                "E-READ-002",
                f"`{mark}` closes nothing",
                span=span,
                help="remove it, or look for a bracket that is missing further up",
                notes=self._last_form(),
            )
        opened = self.open[-1]
        if opened.mark in ("'", "#;"):
            raise self._lonely(opened)
        if mark != _CLOSING[opened.mark]:
            raise SexpgpuError(
                "E-READ-003",
                f"`{mark}` closes a list that `{opened.mark}` opened",
                span=span,
                expected=f"`{_CLOSING[opened.mark]}`",
                notes=[f"the list opens at {opened.span}"],
            )
        self.open.pop()
        start = opened.span
        if start.line == self.line:
            width = position - self.line_start - start.column + 1
        else:
            width = max(1, len(self.source.line(start.line).rstrip()) - start.column + 1)
        whole = Span(self.source, start.line, start.column, width)
        self._add(ListDatum(tuple(opened.items), opened.mark, whole))

    def _part(self, start: int, end: int, span: Span) -> None:
        """Refuse a word and a string that touch: most often a quote is missing further up."""
        before, self.before = self.before, (start, end, span)
        if before is None or before[1] != start:
            return
        if "\n" in self.text[before[0] : before[1]]:
            torn = self._torn(before[2], "string", '`"`')
            torn.message = "a quote is missing: this string ends right before a word"
            torn.notes.append(f"it ends at {span}")
            raise torn
        raise SexpgpuError(
            "E-READ-004",
            "a string and a word touch each other",
            span=span,
            help="put a space between them",
        )

    def _watch_indentation(self, span: Span, kind: str | None) -> None:
        if kind == "close":
            return
        if kind == "open" and span.column == 1 and self.resumed is None:
            self.resumed = span
        innermost = self.open[-1]
        if self.offside is None and innermost.span.column >= span.column > 1:
            self.offside = (innermost, span)

    def _last_form(self) -> list[str]:
        if not self.top or self.top[-1].span is None:
            return []
        return [f"the form that ended last begins at {self.top[-1].span}"]

    def _lonely(self, opened: _Open) -> SexpgpuError:
        return SexpgpuError(
            "E-READ-010",
            f"nothing follows `{opened.mark}`",
            span=opened.span,
            expected="the datum that it " + ("quotes" if opened.mark == "'" else "leaves out"),
        )

    def _torn(self, span: Span, what: str, mark: str) -> SexpgpuError:
        return SexpgpuError(
            "E-READ-006",
            f"the {what} that opens here is never closed",
            span=Span(span.source, span.line, span.column, 1 if what == "string" else 2),
            help=f"close it with {mark}",
        )

    def _left_open(self) -> SexpgpuError:
        """The text has ended inside a list, or after a prefix.

        The outermost open list is the form in which a bracket is missing: whatever follows it has
        become a part of it.  Indentation then tells which of its lists it was.
        """
        if self.open[-1].mark in ("'", "#;"):
            return self._lonely(self.open[-1])
        guilty = self.open[0]
        notes = []
        if self.resumed is not None:
            notes.append(f"line {self.resumed.line} looks like the start of the next form")
        elif len(self.open) > 1:
            places = ", ".join([str(opened.span) for opened in self.open[-3:]])
            notes.append(f"{len(self.open)} lists are open at the end, the last ones at {places}")
        if self.offside is not None:
            inner, line = self.offside
            notes.append(
                f"line {line.line} starts left of the list at {inner.span}: "
                "was that one meant to end before?"
            )
        return SexpgpuError(
            "E-READ-001",
            "this list is never closed",
            span=guilty.span,
            help=f"close it with `{_CLOSING.get(guilty.mark, ')')}`",
            notes=notes,
        )
