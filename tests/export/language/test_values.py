"""How values are named and printed in messages."""

from __future__ import annotations

import pytest

from sexpgpu.export.language.data import Keyword, Symbol
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.values import Builtin, Call, describe, portray, show
from sexpgpu.schemas.errors import Source, Span


class Thing:
    """A kind of value that the core does not know."""

    def describe_value(self) -> str:
        return "a thing"

    def show_value(self) -> str:
        return "#<thing>"


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (None, "nil", "nil"),
        (True, "a boolean", "true"),
        (3, "a number", "3"),
        (0.5, "a number", "0.5"),
        ("a\n", "a string", '"a\\n"'),
        ((), "an empty list", "()"),
        ((1, (2, "b")), "a list of 2", '(1 (2 "b"))'),
        (Keyword("k"), "a keyword", ":k"),
        (Symbol("s"), "a symbol", "s"),
        (Thing(), "a thing", "#<thing>"),
        ((Thing(), Thing()), "a list of 2", "(#<thing> #<thing>)"),
        (Builtin("f", "(x)", lambda call, p, k: None), "a function", "#<function f>"),
        (b"", "a bytes", "#<bytes>"),
    ],
)
def test_every_kind_is_described_and_shown(value: object, kind: str, shown: str) -> None:
    assert describe(value) == kind
    assert show(value) == shown


def test_what_is_shown_is_cut_at_a_limit() -> None:
    assert show(tuple(range(1000)), 10) == "(0 1 2 3 4…"
    assert show("x" * 1000, 5) == '"xxxx…'
    shared: object = 1
    for _ in range(1000):
        shared = (shared, shared)
    assert len(show(shared, 50)) == 51


def test_a_value_is_portrayed_by_kind_and_beginning() -> None:
    assert portray((1, 2)) == "a list of 2: (1 2)"
    assert portray(None) == "nil"
    assert portray(()) == "an empty list"


def test_errors_of_a_call_stand_at_their_argument() -> None:
    source = Source("t.sx", "(f 1 :k 2)")
    whole, one, two = (Span(source, 1, column) for column in (1, 4, 9))
    call = Call(Evaluator(), "f", whole, (one,), {"k": two})
    assert call.error("E-VALUE-001", "x", 0).span is one
    assert call.error("E-VALUE-001", "x", "k").span is two
    assert call.error("E-VALUE-001", "x").span is whole
    # `map` calls without argument spans.
    assert call.error("E-VALUE-001", "x", 5).span is whole
    error = call.wrong_kind("s", "k", "a number")
    assert (error.code, error.message) == ("E-TYPE-001", "`f` cannot take a string as its `:k`")
    assert (error.came, error.expected) == ('a string: "s"', "a number")
