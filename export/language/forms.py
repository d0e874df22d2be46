"""The special forms of the core, by name, and those of them that bind, loop and quote."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sexpgpu.export.language.choices import compile_and, compile_cond, compile_if, compile_or
from sexpgpu.export.language.data import Datum, ListDatum, Symbol, quoted
from sexpgpu.export.language.definitions import (
    compile_def,
    compile_defn,
    compile_fn,
    compile_include,
    compile_named,
)
from sexpgpu.export.language.environment import Environment, Scope, Slots
from sexpgpu.export.language.parameters import compile_pattern
from sexpgpu.export.language.syntax import USAGE, check_pattern, compile_body, malformed
from sexpgpu.export.language.values import Code, portray
from sexpgpu.schemas.errors import SexpgpuError

if TYPE_CHECKING:
    from sexpgpu.export.language.evaluator import Evaluator

#: The code of a form: from the evaluator, the form, its scope, and whether it may define names.
FormCompiler: TypeAlias = "Callable[[Evaluator, ListDatum, Scope, bool], Code]"


def compile_let(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    if len(datum.items) < 3:
        raise malformed(datum, "`let` takes a list of bindings and a body")
    bindings = datum.items[1]
    if not isinstance(bindings, ListDatum):
        raise malformed(bindings, "the bindings of `let` stand in brackets", datum)
    if len(bindings.items) % 2:
        bracketed = next(filter(partial(_is_a_call, scope), bindings.items[::2]), None)
        name = bindings.items[-1] if bracketed is None else bracketed
        error = malformed(name, "this name of `let` has no value", datum)
        error.help = _brackets_of_other_lisps(name)
        raise error
    inner = scope.nest()
    steps: list[Code] = []
    for pattern, init in zip(bindings.items[::2], bindings.items[1::2], strict=True):
        _check_let_pattern(evaluator, pattern)
        if isinstance(pattern, Symbol):
            code = compile_named(evaluator, pattern.name, init, inner)
            steps.append(_binding(inner.add(pattern), code))
        else:
            code = evaluator.compile(init, inner)
            steps.append(_unpacking(compile_pattern(pattern, inner), code))
    body = compile_body(evaluator, datum.items[2:], inner)

    def run(frame: Slots) -> object:
        for step in steps:
            step(frame)
        return body(frame)

    return run


def _check_let_pattern(evaluator: Evaluator, pattern: Datum) -> None:
    try:
        check_pattern(evaluator, pattern)
    except SexpgpuError as error:
        error.help = error.help or _brackets_of_other_lisps(pattern)
        error.expected = USAGE["let"]
        raise


def _is_a_call(scope: Scope, pattern: Datum) -> bool:
    """Whether what stands for a name is a name and a call, as `((best which) (top-k x 2))` is."""
    if not isinstance(pattern, ListDatum) or len(pattern.items) != 2:
        return False
    value = pattern.items[1]
    head = value.items[0] if isinstance(value, ListDatum) and value.items else None
    if not isinstance(head, Symbol):
        return False
    return scope.resolve(head.name) is not None or head.name in scope.top.values


def _brackets_of_other_lisps(pattern: Datum) -> str | None:
    """Other Lisps put every name and value into brackets of their own."""
    if isinstance(pattern, ListDatum) and len(pattern.items) == 2:
        return "bindings have no brackets of their own: `(let (x 1 y 2) …)`"
    return None


def _binding(place: int, code: Code) -> Code:
    def bind(frame: Slots) -> None:
        frame[place] = code(frame)

    return bind


def _unpacking(bind: Callable[[Slots, object], None], code: Code) -> Code:
    return lambda frame: bind(frame, code(frame))


def compile_for(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    if len(datum.items) < 3:
        raise malformed(datum, "`for` takes a name, a list and a body")
    binding = datum.items[1]
    if not isinstance(binding, ListDatum) or len(binding.items) != 2:
        raise malformed(binding, "`for` binds one name to the elements of one list", datum)
    pattern, source = binding.items
    check_pattern(evaluator, pattern)
    items = evaluator.compile(source, scope)
    inner = scope.enter()
    bind = compile_pattern(pattern, inner)
    body = compile_body(evaluator, datum.items[2:], inner)
    layout = inner.layout

    def run(frame: Slots) -> object:
        values = items(frame)
        if not isinstance(values, tuple):
            raise SexpgpuError(
                "E-TYPE-001",
                "`for` goes through a list",
                span=source.span,
                came=portray(values),
                expected="a list, such as `(range 4)`",
                help=_loop_help(values),
            )
        spare = [None] * (layout.size - 1)
        cost = 1 + (len(spare) >> 3)
        made = []
        for value in values:
            evaluator.charge(cost, datum.span)
            round = [frame, *spare]
            bind(round, value)
            made.append(body(round))
        return tuple(made)

    return run


def _loop_help(values: object) -> str | None:
    if getattr(values, "is_tensor", False):
        return "loop along a tensor's axis with `scan`"
    if isinstance(values, int) and not isinstance(values, bool):
        return "numbers from 0 are `(range n)`"
    return None


def compile_do(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    if len(datum.items) < 2:
        raise malformed(datum, "`do` takes at least one expression")
    if not top:
        return compile_body(evaluator, datum.items[1:], scope)

    # At the top level each form is compiled when those before it have run, as in a file.
    def run(frame: Slots) -> object:
        value: object = None
        for item in datum.items[1:]:
            value = evaluator.run_form(item, Environment(scope, frame))
        return value

    return run


def compile_quote(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    if len(datum.items) != 2:
        raise malformed(datum, "`quote` takes one datum")
    value = quoted(datum.items[1])
    return lambda frame: value


FORMS: dict[str, FormCompiler] = {
    "def": compile_def,
    "defn": compile_defn,
    "fn": compile_fn,
    "let": compile_let,
    "for": compile_for,
    "if": compile_if,
    "cond": compile_cond,
    "and": compile_and,
    "or": compile_or,
    "do": compile_do,
    "quote": compile_quote,
    "include": compile_include,
}
