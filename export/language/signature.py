"""What a callee takes: its parameter list, and the check of a call against it.

    (x y)                          two arguments
    (x &optional (step 1))         the second may be left out
    (x &rest more)                 any number after the first
    (x &key (bias true) mask)      `:bias value` and `:mask value` may follow; mask is nil else

One rule says which keywords of a call name parameters.  A callee without `&key` gets every keyword
as an ordinary value: `(get record :tokens)`.  For a callee with `&key`, the first keyword that is
*written* in the call after the required arguments begins the keyword arguments, and from there on
the call is pairs of a keyword and a value to its end; with `&rest` and `&key` together the rest is
therefore all that stands before that keyword.  A keyword that is computed, or that stands among the
required arguments, is a value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sexpgpu.export.language.data import Datum, Keyword, ListDatum, Symbol, write
from sexpgpu.export.language.reader import read
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.schemas.errors import SexpgpuError, Span

_MARKERS = ("&optional", "&rest", "&key")
_USAGE = "(name … &optional name … &rest name &key (name default) name …)"


@dataclass(frozen=True)
class Signature:
    """A parameter list, parsed.

    `required` holds patterns (a symbol, or a list that takes a list apart); `optional` and `keys`
    map names to the datum of their default, None where it is nil.
    """

    text: str
    required: tuple[Datum, ...]
    optional: Mapping[str, Datum | None]
    rest: str | None
    keys: Mapping[str, Datum | None]

    @cached_property
    def least(self) -> int:
        """How many positional arguments there must be."""
        return len(self.required)

    @cached_property
    def most(self) -> int | None:
        """How many positional arguments there may be; None for any number."""
        return None if self.rest is not None else len(self.required) + len(self.optional)

    @cached_property
    def is_simple(self) -> bool:
        """Whether the parameters are names alone, all required."""
        return not (self.optional or self.rest or self.keys) and all(
            isinstance(pattern, Symbol) for pattern in self.required
        )

    def check(
        self,
        name: str,
        count: int,
        keywords: Collection[str],
        span: Span | None,
        *,
        extra: Span | None = None,
        keyword_spans: Mapping[str, Span | None] | None = None,
    ) -> None:
        """E-CALL-002 for a wrong number of arguments, E-CALL-003 for a keyword not taken.

        `extra` is the span of the first argument too many, where the call is written out.
        """
        if count < self.least or (self.most is not None and count > self.most):
            too_many = count > self.least
            raise SexpgpuError(
                "E-CALL-002",
                f"`{name}` takes {self._counts()}, {count} came",
                span=(extra if too_many else None) or span,
                expected=self.usage(name),
            )
        for keyword in keywords:
            if keyword not in self.keys:
                raise SexpgpuError(
                    "E-CALL-003",
                    f"`{name}` has no keyword `:{keyword}`",
                    span=(keyword_spans or {}).get(keyword) or span,
                    expected=self.usage(name),
                    help=did_you_mean(keyword, self.keys, ":"),
                )

    def names(self) -> list[str]:
        """The names of all parameters that are no patterns."""
        named = [pattern.name for pattern in self.required if isinstance(pattern, Symbol)]
        rest = [] if self.rest is None else [self.rest]
        return [*named, *self.optional, *rest, *self.keys]

    def usage(self, name: str) -> str:
        """How a call is written."""
        inner = self.text[1:-1]
        return f"({name} {inner})" if inner else f"({name})"

    def _counts(self) -> str:
        least, most = self.least, self.most
        if most is None:
            return f"at least {_arguments(least)}"
        return _arguments(least) if least == most else f"{least} to {_arguments(most)}"


def parse_signature(datum: Datum) -> Signature:
    """The signature that a parameter list writes down; E-FORM-001 when it is malformed."""
    if not isinstance(datum, ListDatum):
        raise _malformed(datum, "a parameter list stands in brackets")
    required: list[Datum] = []
    optional: dict[str, Datum | None] = {}
    keys: dict[str, Datum | None] = {}
    rest: str | None = None
    section, seen = "", list[str]()
    for item in datum.items:
        if isinstance(item, Symbol) and item.name.startswith("&"):
            if item.name not in _MARKERS:
                raise _malformed(item, f"`{item.name}` is no part of a parameter list", _MARKERS)
            if section and _MARKERS.index(item.name) <= _MARKERS.index(section):
                raise _malformed(item, f"`{item.name}` stands after `{section}`")
            if section == "&rest" and rest is None:
                raise _malformed(item, "`&rest` has no name")
            section = item.name
            continue
        if section == "":
            seen.extend(names_of(item))
            required.append(item)
            continue
        name, default = _named(item, section)
        seen.append(name)
        if section == "&optional":
            optional[name] = default
        elif section == "&key":
            keys[name] = default
        elif rest is None:
            rest = name
        else:
            raise _malformed(item, "`&rest` takes one name")
    if section == "&rest" and rest is None:
        raise _malformed(datum, "`&rest` has no name")
    distinct = set[str]()
    for name in seen:
        # Any number of values may be thrown away.
        if name in distinct and name != "_":
            raise _malformed(datum, f"two parameters are called `{name}`")
        distinct.add(name)
    return Signature(write(datum), tuple(required), optional, rest, keys)


def signature_of(text: str) -> Signature:
    """The signature that a text such as `(x &key axis)` writes down."""
    return parse_signature(read(text, "a builtin's signature")[0])


def names_of(pattern: Datum) -> list[str]:
    """The names that a pattern binds, in order: a symbol, or a list of patterns."""
    if isinstance(pattern, Symbol) and not pattern.name.startswith("&"):
        return [pattern.name]
    if isinstance(pattern, ListDatum):
        names: list[str] = []
        for item in pattern.items:
            names.extend(names_of(item))
        return names
    raise SexpgpuError(
        "E-FORM-001",
        f"`{_short(pattern)}` cannot be bound",
        span=pattern.span,
        expected="a name, or a list of names that takes a list apart",
    )


def split_keywords(signature: Signature | None, items: Sequence[object]) -> int:
    """At which of a call's arguments the keyword arguments begin; their number when none do.

    `items` are the data of a call, or the values that `apply` passes on.  A callee that says
    nothing of its parameters (None) takes keywords anywhere.
    """
    if signature is not None and not signature.keys:
        return len(items)
    first = 0 if signature is None else signature.least
    for index in range(first, len(items)):
        if isinstance(items[index], Keyword):
            return index
    return len(items)


def keyword_names(items: Sequence[object], start: int, name: str, span: Span | None) -> list[str]:
    """The keywords of the pairs from `start` on; E-CALL-002 when they are no pairs."""
    names: dict[str, None] = {}
    for index in range(start, len(items), 2):
        keyword = items[index]
        place = getattr(keyword, "span", None) or span
        if not isinstance(keyword, Keyword):
            message = f"`{name}` gets an argument after its keyword arguments"
        elif index + 1 == len(items):
            message = f"the keyword `:{keyword.name}` has no value"
        elif keyword.name in names:
            message = f"the keyword `:{keyword.name}` is given twice"
        else:
            names[keyword.name] = None
            continue
        raise SexpgpuError(
            "E-CALL-002",
            message,
            span=place,
            expected="keyword arguments last, each a keyword and a value",
        )
    return list(names)


def _named(item: Datum, section: str) -> tuple[str, Datum | None]:
    """The name and default of an item after `&optional`, `&rest` or `&key`."""
    if isinstance(item, Symbol):
        return item.name, None
    if (
        section != "&rest"
        and isinstance(item, ListDatum)
        and len(item.items) == 2
        and isinstance(item.items[0], Symbol)
    ):
        return item.items[0].name, item.items[1]
    form = "a name" if section == "&rest" else "a name, or (name default)"
    raise _malformed(item, f"after `{section}` stands {form}")


def _malformed(datum: Datum, message: str, names: Sequence[str] = ()) -> SexpgpuError:
    word = datum.name if isinstance(datum, Symbol) else ""
    return SexpgpuError(
        "E-FORM-001",
        message,
        span=datum.span,
        expected=_USAGE,
        help=did_you_mean(word, names) if names else None,
    )


def _arguments(count: int) -> str:
    return "no arguments" if count == 0 else "1 argument" if count == 1 else f"{count} arguments"


def _short(datum: Datum) -> str:
    text = write(datum)
    return text if len(text) <= 40 else text[:40] + "…"
