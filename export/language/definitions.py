"""The special forms that define names and make functions: `def`, `defn`, `fn`, `include`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexpgpu.export.language.data import Datum, ListDatum, Literal, Symbol
from sexpgpu.export.language.environment import Environment, Scope, Slots
from sexpgpu.export.language.parameters import compile_parameters
from sexpgpu.export.language.syntax import (
    check_name,
    check_pattern,
    compile_body,
    definable,
    malformed,
    short,
)
from sexpgpu.export.language.values import Code, Function
from sexpgpu.schemas.errors import SexpgpuError

if TYPE_CHECKING:
    from sexpgpu.export.language.evaluator import Evaluator


def compile_def(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    if len(datum.items) != 3:
        raise malformed(datum, "`def` takes a name and a value")
    _needs_top(datum, top)
    symbol = definable(evaluator, datum.items[1], datum)
    code = compile_named(evaluator, symbol.name, datum.items[2], scope)

    def run(frame: Slots) -> object:
        scope.top.check_new(symbol)
        value = code(frame)
        scope.top.define(symbol, value)
        return value

    return run


def compile_defn(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    if len(datum.items) < 4:
        raise malformed(datum, "`defn` takes a name, a parameter list and a body")
    _needs_top(datum, top)
    symbol = definable(evaluator, datum.items[1], datum)
    make = _function(evaluator, symbol.name, datum, 2, scope)

    def run(frame: Slots) -> object:
        function = make(frame)
        scope.top.define(symbol, function)
        return function

    return run


def _needs_top(datum: ListDatum, top: bool) -> None:
    if not top:
        raise SexpgpuError(
            "E-FORM-001",
            f"`{short(datum.items[0])}` stands at the top level only",
            span=datum.span,
            help="bind a local name with `let`",
        )


def compile_include(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    if len(datum.items) != 2:
        raise malformed(datum, "`include` takes one path")
    _needs_top(datum, top)
    path = datum.items[1]
    if not isinstance(path, Literal) or not isinstance(path.value, str):
        raise malformed(path, "the path of `include` is a string", datum)
    text = path.value
    return lambda frame: evaluator.inclusions.include(
        evaluator, text, Environment(scope, frame), path.span
    )


def compile_fn(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    return _function(evaluator, "fn", datum, 1, scope)


def _function(evaluator: Evaluator, name: str, datum: ListDatum, at: int, scope: Scope) -> Code:
    """The code that makes a function of a form with its parameters at an index."""
    if len(datum.items) < at + 2:
        raise malformed(datum, "a function has a parameter list and a body")
    parameters = compile_parameters(datum.items[at], scope, evaluator.compile)
    for pattern in parameters.signature.required:
        check_pattern(evaluator, pattern)
    for parameter in parameters.signature.names():
        check_name(evaluator, Symbol(parameter, datum.items[at].span))
    code = compile_body(evaluator, datum.items[at + 1 :], parameters.scope)
    return lambda frame: Function(name, parameters, code, frame)


def compile_named(evaluator: Evaluator, name: str, datum: Datum, scope: Scope) -> Code:
    """The code of a value that gets a name; a function written out is called by it."""
    if isinstance(datum, ListDatum) and datum.items and datum.items[0] == Symbol("fn"):
        return _function(evaluator, name, datum, 1, scope)
    return evaluator.compile(datum, scope)
