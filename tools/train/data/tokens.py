"""The tokens of a text, by byte or by character; those of a tokenizer are made beside."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.files import DataFile
from sexpgpu.tools.train.data.kept import kept

_BLOCK = 1 << 20
_CODE_POINTS = 0x110000
_KEPT_FROM = 64 << 20
_SHOWN_AT_MOST = 1_000_000


@dataclass(frozen=True)
class Tokens:
    """Every token of a file: `stored` as they stand, or their places in `table` where there is one.

    `stored` is one axis of unsigned numbers, in memory or mapped; `file` is watched while it is
    mapped.  `characters` are those of a vocabulary of characters, in the order of their tokens.
    """

    file: DataFile
    stored: Array
    table: Array | None = None
    characters: str | None = None
    #: What the tokens depend on besides the text.
    origin: str = ""

    def __len__(self) -> int:
        return len(self.stored)

    def windows(self, starts: Array, length: int) -> Array:
        """The `length` tokens from each of these places on: [starts, length] i32."""
        self.file.check()
        found = sliding_window_view(self.stored, length)[starts]
        if self.table is not None:
            found = self.table[found]
        return found.astype(np.int32)


def byte_tokens(file: DataFile, symbols: int | None) -> Tokens:
    """Bytes as they are, mapped.  Raises E-DATA-008 for one that is not below `symbols`."""
    if symbols is not None and symbols < 256:
        before = 0
        for piece in file.pieces():
            beyond = np.frombuffer(piece, np.uint8) >= symbols
            if beyond.any():
                place = before + int(beyond.argmax())
                byte = piece[place - before]
                raise _beyond(file, place, f"the byte {byte} {chr(byte)!a}", symbols)
            before += len(piece)
    return Tokens(file, file.mapped())


def character_tokens(file: DataFile, symbols: int | None) -> Tokens:
    """Characters of UTF-8, numbered in the order of their code points from 0.

    The vocabulary is that of the whole file, whatever part of it is read.  Raises E-DATA-003 where
    the file is no UTF-8 and E-DATA-008 where it has more than `symbols` characters.
    """
    points, length = _vocabulary(file)
    characters = "".join(map(chr, points))
    if symbols is not None and len(points) > symbols:
        first = characters[symbols]
        place = _first_place(file, first.encode())
        what = f"{first!r}, the character {symbols} of {len(points)} (from 0)"
        raise _beyond(file, place, what, symbols, len(points))
    dtype = np.dtype(np.uint8 if len(points) <= 256 else np.uint16)
    if len(points) > 65_536:
        dtype = np.dtype(np.uint32)
    table = np.zeros(_CODE_POINTS, dtype)
    table[points] = np.arange(len(points), dtype=dtype)
    if length == file.size:  # ASCII alone: the bytes are the code points
        return Tokens(file, file.mapped(), table[:256], characters)
    stored = kept(
        "characters-1",
        file,
        dtype,
        lambda: (table[_code_points(text)] for text in decoded(file)),
        file.size >= _KEPT_FROM,
    )
    return Tokens(file, stored, None, characters)


def decoded(file: DataFile) -> Iterator[str]:
    """The file's text in pieces, decoded from UTF-8.  Raises E-DATA-003 at what is none."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    before = 0
    try:
        for piece in file.pieces(_BLOCK):
            waiting = len(decoder.getstate()[0])
            yield decoder.decode(piece)
            before += len(piece)
        waiting = len(decoder.getstate()[0])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        place = before - waiting + error.start
        raise SexpgpuError(
            "E-DATA-003",
            "the text is not UTF-8",
            place=str(file),
            came=f"the byte {error.object[error.start]} at {_line_and_column(file, place)}",
            help="save it as UTF-8, or read its bytes: `:tokenizer :bytes`",
        ) from None


def _vocabulary(file: DataFile) -> tuple[Array, int]:
    """The code points that the file has, in order, and how many characters there are."""
    seen = np.zeros(_CODE_POINTS, np.bool_)
    length = 0
    for text in decoded(file):
        seen[_code_points(text)] = True
        length += len(text)
    return np.flatnonzero(seen), length


def _code_points(text: str) -> Array:
    return np.frombuffer(text.encode("utf-32-le"), np.dtype("<u4"))


def _beyond(
    file: DataFile, place: int, what: str, symbols: int, needed: int | None = None
) -> SexpgpuError:
    """E-DATA-008 at a byte of the file."""
    if needed is not None:
        help = f"give `:symbols {needed}`, or take the rare characters out of the text"
    else:
        help = "give `:symbols 256`, which holds every byte"
        if (count := _characters_of(file)) is not None and count <= symbols:
            help = (
                f"`:tokenizer :characters` numbers the file's {count} characters from 0; with "
                ":bytes give `:symbols 256`"
            )
    return SexpgpuError(
        "E-DATA-008",
        "the text has a token that `:symbols` leaves out",
        place=str(file),
        came=f"{what} at {_line_and_column(file, place)}",
        expected=f"tokens from 0 to {symbols - 1}, as `:symbols {symbols}` says",
        help=help,
    )


def _characters_of(file: DataFile) -> int | None:
    """How many characters the file has; None where it is no text or this would take long."""
    if file.size > _SHOWN_AT_MOST:
        return None
    try:
        return len(_vocabulary(file)[0])
    except SexpgpuError:
        return None


def _first_place(file: DataFile, wanted: bytes) -> int:
    """Where the bytes of a character that is in the file stand first."""
    before, rest = 0, b""
    for piece in file.pieces():
        if (found := (rest + piece).find(wanted)) >= 0:
            return before - len(rest) + found
        rest = (rest + piece)[-3:]
        before += len(piece)
    raise AssertionError("the character was in the file a moment ago")


def _line_and_column(file: DataFile, place: int) -> str:
    """Line and column of a byte, from 1, for people; a column counts bytes."""
    line, start, before = 1, 0, 0
    for piece in file.pieces():
        part = piece[: place - before]
        line += part.count(b"\n")
        if (last := part.rfind(b"\n")) >= 0:
            start = before + last + 1
        before += len(piece)
        if before > place:
            break
    return f"byte {place:,} of the file (line {line:,}, column {place - start + 1:,})"
