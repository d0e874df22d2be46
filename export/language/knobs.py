"""Knobs and variants: the named numbers of a program, and which values they have this time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.data import Datum, Keyword, ListDatum, Literal, Symbol, quoted
from sexpgpu.export.language.environment import Environment
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.reader import read
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.export.language.syntax import definable
from sexpgpu.export.language.values import describe, portray, show
from sexpgpu.schemas.errors import SexpgpuError, Span

#: A knob that is a list holds so many values at most, and lists so deep as checkpoints keep them.
VALUE_LIMIT = 1_000
_DEPTH_LIMIT = 3

_KNOB_USAGE = '(defknob name default "what it is")'
_VARIANT_USAGE = "(defvariant name :knob value …)"


@dataclass(frozen=True, slots=True)
class Knob:
    """A knob: its default, the value it has, and what it is for."""

    name: str
    default: object
    value: object
    about: str


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A knob's value in a variant, and where both stand."""

    value: object
    knob_span: Span | None
    value_span: Span | None


class Knobs:
    """The knobs of one evaluation: where each value comes from, in order of strength.

    `overrides` are values by name, from the command line or a checkpoint; `variant` is the name of
    the variant, whose definition may stand anywhere in the program.
    """

    def __init__(self, variant: str | None, overrides: Mapping[str, object]) -> None:
        self.variant = variant
        self.overrides = dict(overrides)
        self.known: dict[str, Knob] = {}
        self.variants: dict[str, dict[str, _Chosen]] = {}

    def defvariant(self, evaluator: Evaluator, datum: ListDatum, environment: Environment) -> None:
        """The special form `defvariant`."""
        items = datum.items
        if len(items) < 2 or not isinstance(items[1], Symbol):
            raise _malformed(datum, "`defvariant` has a name, knobs and values", _VARIANT_USAGE)
        values: dict[str, _Chosen] = {}
        for index in range(2, len(items), 2):
            knob = items[index]
            if not isinstance(knob, Keyword):
                raise _malformed(knob, "a knob is named by a keyword", _VARIANT_USAGE)
            if index + 1 == len(items):
                raise _malformed(knob, f"the knob `:{knob.name}` has no value", _VARIANT_USAGE)
            if knob.name in values:
                raise SexpgpuError(
                    "E-NAME-002", f"the knob `{knob.name}` is given twice", span=knob.span
                )
            value = items[index + 1]
            values[knob.name] = _Chosen(
                _early(evaluator, value, environment), knob.span, value.span
            )
        if items[1].name in self.variants:
            raise SexpgpuError(
                "E-NAME-002", f"the variant `{items[1].name}` is defined twice", span=items[1].span
            )
        self.variants[items[1].name] = values

    def defknob(self, evaluator: Evaluator, datum: ListDatum, environment: Environment) -> None:
        """The special form `defknob`."""
        items = datum.items
        if len(items) not in (3, 4):
            raise _malformed(datum, "`defknob` has a name and a default", _KNOB_USAGE)
        symbol = definable(evaluator, items[1], datum)
        about = items[3] if len(items) == 4 else Literal("")
        if not isinstance(about, Literal) or not isinstance(about.value, str):
            raise _malformed(about, "what a knob is for is a string", _KNOB_USAGE)
        name = symbol.name
        environment.top.check_new(symbol)
        default = evaluator.evaluate(items[2], environment)
        if not _is_plain(default):
            raise SexpgpuError(
                "E-TYPE-001",
                "a knob is a number, a boolean, a string, a keyword, a dtype, nil, or a list of "
                f"at most {VALUE_LIMIT:,} such, {_DEPTH_LIMIT} deep",
                span=items[2].span,
                came=portray(default),
            )
        value, span = default, None
        if chosen := self.variants.get(self.variant or "", {}).get(name):
            value, span = chosen.value, chosen.value_span
        if name in self.overrides:
            value, span = self.overrides[name], None
        value = _fit(name, default, value, span)
        self.known[name] = Knob(name, default, value, about.value)
        environment.define(symbol, value)

    def finish(self) -> None:
        """What was given must be there.  Raises E-KNOB-001 and E-KNOB-002."""
        if self.variant is not None and self.variant not in self.variants:
            raise SexpgpuError(
                "E-KNOB-002",
                f"the program has no variant `{self.variant}`",
                expected=", ".join(self.variants) or "a program with `defvariant`",
                help=did_you_mean(self.variant, self.variants),
            )
        for values in self.variants.values():
            for name, chosen in values.items():
                self._check(name, chosen.knob_span)
        for name in self.overrides:
            self._check(name, None)

    def _check(self, name: str, span: Span | None) -> None:
        if name not in self.known:
            raise SexpgpuError(
                "E-KNOB-001",
                f"the program has no knob `{name}`",
                span=span,
                expected=", ".join(self.known) or "a program with `defknob`",
                help=did_you_mean(name, self.known),
            )


def _early(evaluator: Evaluator, datum: Datum, environment: Environment) -> object:
    """The value of a datum before anything of the program is defined."""
    try:
        return evaluator.evaluate(datum, environment)
    except SexpgpuError as error:
        if error.code == "E-NAME-001":
            error.notes.append("variants are read before the program runs, and know none of it")
        raise


def read_override(text: str) -> tuple[str, object]:
    """The name and value of `dim=48`, as `--knob` takes it; a bare word is a string.

    Raises E-USAGE-001 where it is not of that form.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SexpgpuError(
            "E-USAGE-001", f"`{text}` sets no knob", expected="--knob NAME=VALUE", exit_code=2
        )
    try:
        data = read(value, f"--knob {name}")
    except SexpgpuError:
        return name, value
    if len(data) != 1 or isinstance(data[0], Symbol):
        return name, value
    plain = _plain(data[0])
    return name, value if plain is _NOT_PLAIN else plain


_NOT_PLAIN = object()


def _plain(datum: Datum) -> object:
    """The value of a literal, a keyword, or `(list …)` of such."""
    if isinstance(datum, ListDatum):
        items = datum.items
        if not items or items[0] != Symbol("list"):
            return _NOT_PLAIN
        values = [_plain(item) for item in items[1:]]
        return _NOT_PLAIN if any(v is _NOT_PLAIN for v in values) else tuple(values)
    return _NOT_PLAIN if isinstance(datum, Symbol) else quoted(datum)


def _is_plain(value: object) -> bool:
    """Whether a checkpoint can hold a value; lists may share parts, so their size is bounded."""
    waiting, count = [(value, 0)], 0
    while waiting:
        item, depth = waiting.pop()
        count += 1
        if count + len(waiting) > VALUE_LIMIT or depth > _DEPTH_LIMIT:
            return False
        if isinstance(item, tuple):
            waiting += [(part, depth + 1) for part in item]
        elif item is not None and not isinstance(item, int | float | str | Keyword):
            return False
    return True


def _fit(name: str, default: object, value: object, span: Span | None) -> object:
    """The value as the default's kind: a whole number may stand for a float, and a bare word of
    the command line for a keyword or a dtype.  E-KNOB-003 else.
    """
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, Keyword) and type(value) is str:
        return Keyword(value)
    if isinstance(default, DType) and type(value) is str and value in list(DType):
        return DType(value)
    if not _is_plain(value) or (default is not None and type(value) is not type(default)):
        quoted = type(default) is str and type(value) in (int, float, bool)
        raise SexpgpuError(
            "E-KNOB-003",
            f"the knob `{name}` is {_kind(default)}",
            span=span,
            came="nil" if value is None else f"{show(value, 60)}, {_kind(value)}",
            expected=f"{_kind(default)}, such as its default {show(default, 60)}",
            help=f'a string is written in quotes: "{show(value, 60)}"' if quoted else None,
        )
    return value


def _kind(value: object) -> str:
    """The kinds of numbers that a knob tells apart."""
    if type(value) in (int, float):
        return "a whole number" if type(value) is int else "a float"
    return describe(value)


def _malformed(datum: Datum, message: str, usage: str) -> SexpgpuError:
    return SexpgpuError("E-FORM-001", message, span=datum.span, expected=usage)
