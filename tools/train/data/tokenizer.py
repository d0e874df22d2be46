"""The tokens of a text by a tokenizer.json, the format of the `tokenizers` package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.files import DataFile
from sexpgpu.tools.train.data.kept import kept
from sexpgpu.tools.train.data.tokens import Tokens, decoded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PIECE = 1 << 20
_LONGEST = 16
_DEFINITION_AT_MOST = 1 << 30
_SCANNED = 1 << 22


def tokenizer_tokens(file: DataFile, definition: str, symbols: int | None) -> Tokens:
    """The text's tokens, kept on this machine once they were made.

    Special tokens are not added, and truncation and padding are off.  A text over a million
    characters is encoded in pieces that end with a line, so that memory is bounded: where a
    tokenizer marks the start of a text, each piece has such a mark.

    Raises E-DATA-002 or E-DATA-003 for a definition or text that cannot be read, E-DATA-008 for a
    token that is not below `symbols`, and E-DATA-010 without the package.
    """
    try:
        import tokenizers
    except ImportError:
        raise SexpgpuError(
            "E-DATA-010",
            "a tokenizer.json is read by the tokenizers package, which is not installed",
            place=definition,
            help="pip install 'sexpgpu[train]'",
        ) from None
    source = DataFile(definition)
    tokenizer = _load(source, tokenizers.Tokenizer)
    ids = tokenizer.get_vocab(with_added_tokens=True).values()
    size = max(ids, default=-1) + 1
    dtype = np.dtype(np.uint16 if size <= 65_536 else np.uint32)
    origin = source.sha256()
    stored = kept(
        f"tokenizer-1 {tokenizers.__version__} {origin}",
        file,
        dtype,
        lambda: (_encode(tokenizer, piece, dtype, file) for piece in text_pieces(file)),
    )
    tokens = Tokens(file, stored, origin=origin)
    _check_symbols(tokens, tokenizer, definition, symbols, size)
    return tokens


def text_pieces(file: DataFile, size: int = _PIECE) -> Iterator[str]:
    """The text in pieces of about `size` characters.

    A piece is cut after a line's end that has no space on either side: tokenizers of words and
    those of GPT-2 and later join nothing over it.  Where there is no such place in 16 times the
    size, it is cut anywhere.
    """
    text = ""
    for more in decoded(file):
        text += more
        if len(text) <= size:
            continue
        cut = _last_cut(text) or (len(text) if len(text) > size * _LONGEST else 0)
        if cut:
            yield text[:cut]
            text = text[cut:]
    if text:
        yield text


def _last_cut(text: str) -> int:
    """The last place after a line's end that has no space on either side; 0 without one."""
    end = text.rfind("\n", 0, len(text) - 1)
    while end > 0 and (text[end - 1].isspace() or text[end + 1].isspace()):
        end = text.rfind("\n", 0, end)
    return end + 1 if end > 0 else 0


def _load(source: DataFile, kind: type[Tokenizer]) -> Tokenizer:
    if source.size > _DEFINITION_AT_MOST:
        raise _damaged(source, f"{source.size:,} bytes are more than any tokenizer has")
    try:
        tokenizer = kind.from_file(str(source))
    # The package raises plain `Exception`.
    except Exception as error:
        raise _damaged(source, str(error)) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _damaged(source: DataFile, reason: str) -> SexpgpuError:
    return SexpgpuError(
        "E-DATA-003",
        f"the tokenizer cannot be read: {reason[:200]}",
        place=str(source),
        expected="a tokenizer.json, as the tokenizers package writes it",
    )


def _encode(tokenizer: Tokenizer, text: str, dtype: np.dtype[Any], file: DataFile) -> Array:
    try:
        encoding = tokenizer.encode(text, add_special_tokens=False)
    except Exception as error:
        raise SexpgpuError(
            "E-DATA-003",
            f"the tokenizer fails on the text: {str(error)[:200]}",
            place=str(file),
            help="take a tokenizer that has a token for what it does not know",
        ) from None
    return np.asarray(encoding.ids, dtype)


def _check_symbols(
    tokens: Tokens, tokenizer: Tokenizer, definition: str, symbols: int | None, size: int
) -> None:
    if symbols is None or symbols >= size:
        return
    for start in range(0, len(tokens), _SCANNED):
        beyond = tokens.stored[start : start + _SCANNED] >= symbols
        if beyond.any():
            place = start + int(beyond.argmax())
            token = int(tokens.stored[place])
            raise SexpgpuError(
                "E-DATA-008",
                "the text has a token that `:symbols` leaves out",
                place=str(tokens.file),
                came=f"the token {token}, {tokenizer.id_to_token(token)!r}, which is number "
                f"{place:,} of the text{_line_of(tokens.file, tokenizer, place)}",
                expected=f"tokens from 0 to {symbols - 1}, as `:symbols {symbols}` says",
                help=f"`{definition}` has {size:,} tokens: give `:symbols {size}`",
            )


def _line_of(file: DataFile, tokenizer: Tokenizer, place: int) -> str:
    """The line that a token stands in, for people, found by encoding the text up to there."""
    line = 1
    for text in text_pieces(file):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        if place < len(encoding.ids):
            line += text.count("\n", 0, encoding.offsets[place][0])
            return f" (line {line:,})"
        place -= len(encoding.ids)
        line += text.count("\n")
    return ""
