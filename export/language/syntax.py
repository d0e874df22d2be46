"""How the special forms are written, and what is checked and compiled alike in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sexpgpu.export.language.data import Datum, ListDatum, Symbol, write
from sexpgpu.export.language.environment import Scope, Slots
from sexpgpu.export.language.signature import names_of
from sexpgpu.export.language.values import Code
from sexpgpu.schemas.errors import SexpgpuError

if TYPE_CHECKING:
    from sexpgpu.export.language.evaluator import Evaluator

#: Every special form of the core, and how it is written.
USAGE = {
    "def": "(def name value)",
    "defn": "(defn name (parameter …) body …)",
    "fn": "(fn (parameter …) body …)",
    "let": "(let (name value …) body …)",
    "for": "(for (name list) body …)",
    "if": "(if test then else)",
    "cond": "(cond (test value …) … (else value …))",
    "and": "(and value …)",
    "or": "(or value …)",
    "do": "(do value …)",
    "quote": "(quote datum)",
    "include": '(include "path.sx")',
}


def malformed(datum: Datum, message: str, form: ListDatum | None = None) -> SexpgpuError:
    """E-FORM-001 at `datum`, with how the form around it is written."""
    whole = form or datum
    usage = None
    if isinstance(whole, ListDatum) and whole.items and isinstance(whole.items[0], Symbol):
        usage = USAGE.get(whole.items[0].name)
    return SexpgpuError("E-FORM-001", message, span=datum.span, expected=usage)


def compile_body(evaluator: Evaluator, body: Sequence[Datum], scope: Scope) -> Code:
    """The code of several expressions, whose value is that of the last."""
    codes = [evaluator.compile(datum, scope) for datum in body]
    if len(codes) == 1:
        return codes[0]
    *before, last = codes

    def run(frame: Slots) -> object:
        for code in before:
            code(frame)
        return last(frame)

    return run


def definable(evaluator: Evaluator, datum: Datum, form: ListDatum) -> Symbol:
    """The datum as a name that can be bound: E-FORM-001 for none, and for a special form's."""
    if not isinstance(datum, Symbol) or datum.name.startswith("&"):
        raise malformed(datum, f"`{short(datum)}` is not a name", form)
    check_name(evaluator, datum)
    return datum


def check_pattern(evaluator: Evaluator, pattern: Datum) -> None:
    """E-FORM-001 when a pattern binds what is no name, or the name of a special form."""
    if isinstance(pattern, ListDatum):
        for item in pattern.items:
            check_pattern(evaluator, item)
    else:
        names_of(pattern)
        assert isinstance(pattern, Symbol)
        check_name(evaluator, pattern)


def check_name(evaluator: Evaluator, symbol: Symbol) -> None:
    if symbol.name in USAGE or symbol.name in evaluator.special_forms:
        raise SexpgpuError(
            "E-FORM-001",
            f"`{symbol.name}` is a special form and cannot be bound",
            span=symbol.span,
            help="choose another name",
        )


def short(datum: Datum) -> str:
    text = write(datum)
    return text if len(text) <= 40 else text[:40] + "…"
