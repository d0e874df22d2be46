"""The special forms that choose: `if`, `cond`, `and`, `or`.

They ask the evaluator whether a value counts as true, which a tensor cannot say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexpgpu.export.language.data import ListDatum, Literal, Symbol
from sexpgpu.export.language.environment import Scope, Slots
from sexpgpu.export.language.syntax import compile_body, malformed
from sexpgpu.export.language.values import Code

if TYPE_CHECKING:
    from sexpgpu.export.language.evaluator import Evaluator


def compile_if(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    if len(datum.items) not in (3, 4):
        raise malformed(datum, f"`if` takes two or three parts, {len(datum.items) - 1} came")
    parts = [evaluator.compile(item, scope) for item in datum.items[1:]]
    test, then = parts[:2]
    otherwise: Code = parts[2] if len(parts) == 3 else _nil
    span, truth = datum.items[1].span, evaluator.truth

    def run(frame: Slots) -> object:
        value = test(frame)
        if value is True or (value is not False and truth(value, span)):
            return then(frame)
        return otherwise(frame)

    return run


def _nil(frame: Slots) -> object:
    return None


def compile_cond(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    clauses = []
    for index, clause in enumerate(datum.items[1:], 2):
        if not isinstance(clause, ListDatum) or len(clause.items) < 2:
            raise malformed(clause, "a clause of `cond` is a test and values in brackets", datum)
        test, *values = clause.items
        if isinstance(test, Symbol) and test.name == "else" and scope.resolve("else") is None:
            if index != len(datum.items):
                raise malformed(clause, "`else` is the last clause of `cond`", datum)
            test = Literal(True, test.span)
        body = compile_body(evaluator, values, scope)
        clauses.append((evaluator.compile(test, scope), test.span, body))

    def run(frame: Slots) -> object:
        for test, span, body in clauses:
            if evaluator.truth(test(frame), span, "cond"):
                return body(frame)
        return None

    return run


def compile_and(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    parts = [(evaluator.compile(item, scope), item.span) for item in datum.items[1:]]

    def run(frame: Slots) -> object:
        value: object = True
        for code, span in parts:
            value = code(frame)
            if not evaluator.truth(value, span, "and"):
                return value
        return value

    return run


def compile_or(evaluator: Evaluator, datum: ListDatum, scope: Scope, top: bool) -> Code:
    parts = [(evaluator.compile(item, scope), item.span) for item in datum.items[1:]]

    def run(frame: Slots) -> object:
        value: object = False
        for code, span in parts:
            value = code(frame)
            if evaluator.truth(value, span, "or"):
                return value
        return value

    return run
