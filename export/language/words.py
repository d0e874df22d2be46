"""One word or string of a text as a datum: numbers, names, keywords and escapes.

Each function takes the text of one token and its span; errors carry that span, narrowed to the
guilty characters where they are known.
"""

from __future__ import annotations

import re

from sexpgpu.export.language.data import ESCAPES, Datum, Keyword, Literal, Symbol
from sexpgpu.schemas.errors import SexpgpuError, Span

#: Whole numbers are those of i64.
INTEGER_MINIMUM, INTEGER_MAXIMUM = -(2**63), 2**63 - 1

_CONSTANTS: dict[str, float | bool | None] = {
    "true": True,
    "false": False,
    "nil": None,
    "inf": float("inf"),
    "+inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LIKE_NUMBER = re.compile(r"[+-]?\.?[0-9]")
_NAME = re.compile(r"(?:[^\W\d]|[-+*/<>=!?%&.$~^])(?:\w|[-+*/<>=!?%&.$~^])*")
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|(.))", re.DOTALL)

#: A number needs no more digits than this; a longer word is data.
_NUMBER_LIMIT = 400


def read_word(word: str, span: Span) -> Datum:
    """The datum that a word stands for: E-READ-004 when none, E-VALUE-001 when out of range."""
    if _LIKE_NUMBER.match(word):
        return Literal(_number(word, span), span)
    if word in _CONSTANTS:
        return Literal(_CONSTANTS[word], span)
    if word[0] == ":":
        if _NAME.fullmatch(word, 1) and not _LIKE_NUMBER.match(word, 1):
            return Keyword(word[1:], span)
        raise _wrong_word(word, span, "a keyword is a colon and a name, such as `:axis`")
    if _NAME.fullmatch(word) and word != ".":
        return Symbol(word, span)
    raise _wrong_word(word, span, _advice(word))


def read_string(token: str, span: Span) -> Literal:
    """The string that a token in quotes stands for: E-READ-005 for an unknown escape."""
    body = token[1:-1]
    if "\\" not in body:
        return Literal(body, span)

    def replace(match: re.Match[str]) -> str:
        code, letter = match.groups()
        if letter in ESCAPES:
            return ESCAPES[letter]
        if code is not None and _is_character(int(code, 16)):
            return chr(int(code, 16))
        raise _wrong_escape(body, match, span)

    return Literal(_ESCAPE.sub(replace, body), span)


def _number(word: str, span: Span) -> int | float:
    if len(word) > _NUMBER_LIMIT:
        raise _wrong_word(word, span, f"a number has at most {_NUMBER_LIMIT} characters")
    if _INTEGER.fullmatch(word):
        integer = int(word)
        if INTEGER_MINIMUM <= integer <= INTEGER_MAXIMUM:
            return integer
        raise SexpgpuError(
            "E-VALUE-001",
            "a whole number beyond 64 bits",
            span=span,
            expected=f"a number between {INTEGER_MINIMUM} and {INTEGER_MAXIMUM}",
            help=f"write it as a float: `{word}.0`",
        )
    if _FLOAT.fullmatch(word):
        number = float(word)
        if abs(number) == float("inf"):
            raise SexpgpuError(
                "E-VALUE-001",
                "a float that is too large",
                span=span,
                expected="a float below 1.8e308",
                help="infinity is written `inf`",
            )
        return number
    raise _wrong_word(
        word, span, "a number is written `12`, `-3`, `1.5` or `1e-3`; a name begins with no digit"
    )


def _is_character(code: int) -> bool:
    return code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF


def _wrong_escape(body: str, match: re.Match[str], span: Span) -> SexpgpuError:
    before = body[: match.start()]
    line = span.line + before.count("\n")
    column = len(before) - before.rfind("\n") if "\n" in before else span.column + 1 + len(before)
    written = match.group()
    if written == "\\u":
        written = body[match.start() : match.start() + 11].split("}")[0].split("\n")[0]
    return SexpgpuError(
        "E-READ-005",
        f"a string has no escape `{written}`",
        span=Span(span.source, line, column, len(written)),
        expected=r"\n, \t, \r, \0, \\, \" or \u{1F600}",
        help=r"a backslash itself is written `\\`",
    )


def _wrong_word(word: str, span: Span, advice: str) -> SexpgpuError:
    shown = word if len(word) <= 40 else word[:40] + "…"
    return SexpgpuError(
        "E-READ-004", f"`{shown}` is neither a number nor a name", span=span, help=advice
    )


def _advice(word: str) -> str:
    if word in ("#t", "#true", "#f", "#false"):
        return f"write `{'true' if word[1] == 't' else 'false'}`"
    if word[0] == "#":
        return "`#` only begins the comments `#| … |#` and `#;`"
    if word[0] in "`,@":
        return "there are no macros: a list is made with `list`, and spaces part its values"
    if word == ".":
        return "there are no dotted pairs"
    if word[-1] == ",":
        return "values are parted by spaces alone"
    if word[-1] == ":" and _NAME.fullmatch(word, 0, len(word) - 1):
        return f"a keyword begins with its colon: `:{word[:-1]}`"
    if word[0] in "{}":
        return "lists are written in `( )` or `[ ]`"
    wrong = next((c for c in word if not (c.isalnum() or c in "_-+*/<>=!?%&.$~^")), word[0])
    shown = wrong if wrong.isprintable() else f"U+{ord(wrong):04X}"
    return f"a name has letters, digits and `-+*/<>=!?%&.$~^_`, but no `{shown}`"
