"""When values are equal."""

from __future__ import annotations

import pytest

from sexpgpu.export.language.data import Keyword, Symbol
from sexpgpu.export.language.equality import equal
from sexpgpu.export.language.evaluator import Evaluator, Limits
from sexpgpu.schemas.errors import SexpgpuError

THING = object()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 1.0, True),
        (0.0, -0.0, True),
        (2**53 + 1, float(2**53), False),
        (True, 1, False),
        (False, 0, False),
        (None, False, False),
        (float("nan"), float("nan"), False),
        ("a", "a", True),
        (Keyword("a"), Keyword("a"), True),
        (Keyword("a"), Symbol("a"), False),
        ((1, (2, ())), (1, (2, ())), True),
        ((1, (2, ())), (1, (2, None)), False),
        ((), None, False),
        (THING, THING, True),
        (THING, object(), False),
    ],
)
def test_equal(a: object, b: object, expected: bool) -> None:
    assert equal(Evaluator(), a, b, None) is expected
    assert equal(Evaluator(), b, a, None) is expected
    assert equal(Evaluator(), (a,), (b,), None) is expected


def test_shared_lists_are_walked_within_the_budget() -> None:
    first: object = 1
    second: object = 1
    for _ in range(200):
        first, second = (first, first), (second, second)
    with pytest.raises(SexpgpuError) as raised:
        equal(Evaluator(limits=Limits(steps=1000)), first, second, None)
    assert raised.value.code == "E-LIMIT-002"
