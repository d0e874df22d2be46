"""The library as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexpgpu.export.language.data import Datum, ListDatum, Symbol
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.forms import FORMS
from sexpgpu.export.language.library import library
from sexpgpu.export.language.reader import read
from sexpgpu.export.language.syntax import USAGE
from sexpgpu.export.language.values import Builtin
from sexpgpu.schemas.errors import SexpgpuError

SUITE = Path(__file__).parent / "suite"


def symbols(datum: Datum) -> set[str]:
    if isinstance(datum, Symbol):
        return {datum.name}
    if isinstance(datum, ListDatum):
        return set[str]().union(*[symbols(item) for item in datum.items])
    return set()


def used_in_the_suite() -> set[str]:
    names = set[str]()
    for path in SUITE.glob("*.sx"):
        for datum in read(path.read_bytes(), path.name):
            names |= symbols(datum)
    return names


def test_every_function_and_form_is_in_the_suite() -> None:
    assert set(library()) | set(FORMS) <= used_in_the_suite()


def test_every_form_says_how_it_is_written() -> None:
    assert set(USAGE) == set(FORMS)
    for name, usage in USAGE.items():
        (datum,) = read(usage.replace("…", "more"), name)
        assert isinstance(datum, ListDatum)
        assert datum.items[0] == Symbol(name)


#: `pi` is no function.
FUNCTIONS = {name: value for name, value in library().items() if isinstance(value, Builtin)}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_tells_about_itself(name: str) -> None:
    builtin = FUNCTIONS[name]
    assert builtin.name == name
    assert builtin.about
    assert builtin.about[0].islower() or not builtin.about[0].isalpha()


VALUES = (None, True, 0, -1, 1.5, float("nan"), "s", (), (1, 2), Symbol("q"), abs)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_any_arguments_give_a_value_or_an_error(name: str) -> None:
    builtin = FUNCTIONS[name]
    evaluator = Evaluator()
    codes = set[str]()
    for count in range(4):
        for start in range(len(VALUES)):
            values = [VALUES[(start + step * 3) % len(VALUES)] for step in range(count)]
            try:
                evaluator.apply(builtin, values)
            except SexpgpuError as error:
                codes.add(error.code)
    known = {"E-CALL-001", "E-CALL-002", "E-TYPE-001", "E-VALUE-001", "E-ASSERT-001"}
    assert codes <= known
