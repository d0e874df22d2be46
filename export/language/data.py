"""What the reader makes of a text: symbols, keywords, literals and lists, each with its span.

Symbols and keywords are equal by name, wherever they stand, so that `(quote x)` and `:x` are their
own values while a program runs.  Literals stand for plain Python values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

from sexpgpu.schemas.errors import Span

#: Characters that a string escapes by a letter: `\n` and so on.
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"'}

_ESCAPED = {character: "\\" + letter for letter, character in ESCAPES.items()}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name, such as `x` or `layer-norm`."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword; `name` is without its colon."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A whole number, a float, a string, a boolean or nil (None)."""

    value: int | float | str | bool | None
    span: Span | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class ListDatum:
    """A list and the bracket that opens it, `(` or `[`.

    Its span runs from that bracket to the closing one, or to the end of its first line.
    """

    items: tuple[Datum, ...]
    bracket: str = "("
    span: Span | None = field(default=None, repr=False)


Datum: TypeAlias = Symbol | Keyword | Literal | ListDatum


def write(datum: Datum) -> str:
    """The datum as text that the reader takes back to an equal datum."""
    if isinstance(datum, Symbol):
        return datum.name
    if isinstance(datum, Keyword):
        return ":" + datum.name
    if isinstance(datum, Literal):
        return write_literal(datum.value)
    inner = " ".join([write(item) for item in datum.items])
    return f"[{inner}]" if datum.bracket == "[" else f"({inner})"


def write_literal(value: int | float | str | bool | None) -> str:
    """A literal's value as the reader takes it."""
    if value is None:
        return "nil"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return repr(value)


def write_string(text: str) -> str:
    """A string in quotes, with escapes for what would not be seen."""
    return '"' + "".join([_write_character(character) for character in text]) + '"'


def _write_character(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def quoted(datum: Datum) -> object:
    """The value of a quoted datum: lists become tuples, literals their Python values."""
    if isinstance(datum, Literal):
        return datum.value
    if isinstance(datum, ListDatum):
        return tuple([quoted(item) for item in datum.items])
    return datum
