"""Numbers against Python's own; every operation and error is in suite/numbers.sx."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.language.arithmetic import NUMBER_FUNCTIONS, number_builtins
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.schemas.errors import SexpgpuError

whole = st.integers(-(2**63), 2**63 - 1)
number = whole | st.floats()


def compute(name: str, *values: object) -> object:
    """The value, or the code of the error."""
    try:
        return Evaluator().apply(number_builtins()[name], values)
    except SexpgpuError as error:
        return error.code


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("+", operator.add),
        ("-", operator.sub),
        ("*", operator.mul),
        ("pow", lambda a, b: a ** min(b, 200)),
        ("mod", operator.mod),
        ("quotient", operator.floordiv),
    ],
)
@given(a=whole | st.integers(-20, 20), b=whole | st.integers(-20, 20))
def test_whole_numbers_are_exact_or_refused(
    name: str, exact: Callable[[int, int], int], a: int, b: int
) -> None:
    if (name == "pow" and b < 0) or (name in ("mod", "quotient") and b == 0):
        return
    result = exact(a, b) if name != "pow" or abs(a) > 1 else a ** (b % 2 + 2 if b else 0)
    expected = result if -(2**63) <= result < 2**63 else "E-VALUE-001"
    came = compute(name, a, b)
    assert came == expected
    assert type(came) is type(expected)


@given(a=number, b=number)
def test_division_is_whole_where_it_is_exact(a: float, b: float) -> None:
    came = compute("/", a, b)
    if b == 0:
        assert came == "E-VALUE-001"
    elif type(a) is int and type(b) is int and a % b == 0:
        assert came == (a // b if a // b < 2**63 else "E-VALUE-001")
    else:
        assert came == a / b or (math.isnan(a / b) and came != came)


@pytest.mark.parametrize("name", sorted(NUMBER_FUNCTIONS))
@given(values=st.lists(number | st.sampled_from([0, -1, 0.0, -0.0, 1e308]), min_size=2, max_size=2))
def test_any_numbers_give_a_value_or_an_error(name: str, values: list[float]) -> None:
    if NUMBER_FUNCTIONS[name].signature == "(x)":
        values = values[:1]
    came = compute(name, *values)
    if name == "quotient" and any(type(value) is float for value in values):
        assert came == "E-TYPE-001"
        return
    assert came == "E-VALUE-001" or isinstance(came, int | float)
    if type(came) is int:
        assert -(2**63) <= came < 2**63


@pytest.mark.parametrize("name", sorted(set(NUMBER_FUNCTIONS) - {"=", "!="}))
@pytest.mark.parametrize("value", [None, True, "1", (1,)], ids=repr)
def test_only_numbers_are_taken(name: str, value: object) -> None:
    values = [value] if NUMBER_FUNCTIONS[name].signature == "(x)" else [1, value]
    assert compute(name, *values) == "E-TYPE-001"
