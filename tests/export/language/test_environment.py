"""Names: scopes, the top level, and suggestions."""

from __future__ import annotations

import pytest

from sexpgpu.export.language import environment
from sexpgpu.export.language.data import Symbol
from sexpgpu.export.language.environment import PLACE_LIMIT, Environment
from sexpgpu.schemas.errors import SexpgpuError, Source, Span
from support.programs import program


def test_a_child_adds_and_hides_names() -> None:
    top = Environment.top_level({"a": 1, "b": 2})
    child = top.child({"b": 3, "c": 4})
    grandchild = child.child({"c": 5})
    assert [grandchild.lookup(Symbol(name)) for name in "abc"] == [1, 3, 5]
    assert [child.lookup(Symbol(name)) for name in "abc"] == [1, 3, 4]
    assert top.lookup(Symbol("b")) == 2
    assert grandchild.top is top.top


def test_children_with_the_same_names_share_a_scope() -> None:
    top = Environment.top_level({})
    assert top.child({"x": 1}).scope is top.child({"x": 2}).scope
    assert top.child({"x": 1}).scope is not top.child({"y": 1}).scope


def test_the_base_is_not_changed_by_definitions() -> None:
    base: dict[str, object] = {"a": 1}
    top = Environment.top_level(base)
    top.define(Symbol("a"), 2)
    assert base == {"a": 1}
    assert top.lookup(Symbol("a")) == 2


def test_a_name_is_defined_once() -> None:
    top = Environment.top_level({})
    first = Span(Source("t.sx", "a a"), 1, 1)
    top.define(Symbol("a", first), 1)
    with pytest.raises(SexpgpuError) as raised:
        top.define(Symbol("a", Span(first.source, 1, 3)), 2)
    assert raised.value.code == "E-NAME-002"
    assert raised.value.notes == ["it is first defined at t.sx:1:1"]


def test_a_name_that_is_not_there_is_suggested_from_all_in_scope() -> None:
    top = Environment.top_level({"layer-norm": 1}, reserved=["defmodel"])
    child = top.child({"hidden-width": 2})
    for wrong, right in [
        ("layernorm", "layer-norm"),
        ("hidden-with", "hidden-width"),
        ("defmodle", "defmodel"),
    ]:
        with pytest.raises(SexpgpuError) as raised:
            child.lookup(Symbol(wrong))
        assert raised.value.code == "E-NAME-001"
        assert raised.value.help == f"did you mean `{right}`?"
    with pytest.raises(SexpgpuError) as raised:
        child.lookup(Symbol("q" * 1_000_000))
    assert raised.value.help is None


def test_a_scope_has_a_limited_number_of_names() -> None:
    scope = Environment.top_level({}).scope.enter()
    for number in range(PLACE_LIMIT):
        scope.add(Symbol(f"n{number}"))
    with pytest.raises(SexpgpuError) as raised:
        scope.add(Symbol("one-more"))
    assert raised.value.code == "E-FORM-001"


def test_what_other_libraries_say_leads_to_names_that_there_are() -> None:
    values = program("(def model (linear 1 1))").environment.top.values
    names = environment._OTHER_LIBRARIES
    assert names
    assert [there for there in names.values() if there not in values] == []
    assert [here for here in names if here in values] == []
