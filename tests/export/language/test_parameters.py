"""From arguments to frames, as special forms that call bodies of their own use it."""

from __future__ import annotations

import pytest

from sexpgpu.export.language.data import Symbol
from sexpgpu.export.language.environment import Environment
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.library import library
from sexpgpu.export.language.reader import read
from sexpgpu.schemas.errors import SexpgpuError


def bind(text: str, *positional: object, **keywords: object) -> Environment:
    evaluator = Evaluator()
    around = evaluator.environment(library()).child({"outer": 7})
    parameters = evaluator.parameters(read(text, "t.sx")[0], around)
    return parameters.bind(around, positional, keywords, "f", None)


def values(environment: Environment, names: str) -> list[object]:
    return [environment.lookup(Symbol(name)) for name in names.split()]


def test_arguments_are_bound_by_position_and_keyword() -> None:
    bound = bind("(a (b (c)) &optional d &rest e &key f (g 1))", 1, (2, (3,)), 4, 5, 6, f=8)
    assert values(bound, "a b c d e f g outer") == [1, 2, 3, 4, (5, 6), 8, 1, 7]


def test_defaults_see_the_parameters_before_them_and_what_is_around() -> None:
    bound = bind(
        "(a &optional (b (+ a outer)) &key (c (let (x (* 2 b)) (+ x 1))) (d (list a b c)))", 1
    )
    assert values(bound, "a b c d") == [1, 8, 17, (1, 8, 17)]


def test_a_default_does_not_see_a_later_parameter() -> None:
    with pytest.raises(SexpgpuError) as raised:
        bind("(&key (a later) (later 1))")
    assert raised.value.code == "E-NAME-001"


def test_bind_checks_the_call() -> None:
    with pytest.raises(SexpgpuError) as raised:
        bind("(a)", 1, 2)
    assert raised.value.code == "E-CALL-002"
    with pytest.raises(SexpgpuError) as raised:
        bind("(a &key b)", 1, c=2)
    assert raised.value.code == "E-CALL-003"


def test_expressions_are_evaluated_where_parameters_are_bound() -> None:
    evaluator = Evaluator()
    around = evaluator.environment(library())
    parameters = evaluator.parameters(read("(a &key (b 2))", "t.sx")[0], around)
    (body,) = read("(let (c (+ a b)) ((fn (x) (list x c)) a))", "t.sx")
    for a in (1, 5):
        bound = parameters.bind(around, [a], {}, "f", None)
        assert evaluator.evaluate(body, bound) == (a, a + 2)
        wider = bound.child({"d": a})
        assert evaluator.evaluate(read("(list a b d)", "t.sx")[0], wider) == (a, 2, a)
