"""The language's own tests: every assertion of suite/*.sx is a test.

    (assert-output expression expected)   both are evaluated, and equal
    (assert-error "part" form …)          the last form fails; the error says the part
    (assert-invalid "part" "text")        the text cannot be read or evaluated as a program

A bar in "part" means both: every piece between bars must stand in what the error says.  Other
forms of a file are evaluated in turn, and what they define is known to the assertions after them.
The files of suite/tensors know the whole language; the reference computes their tensors, whose
dtypes and shapes must be those that were expected too.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.language.data import Datum, ListDatum, Literal, Symbol
from sexpgpu.export.language.environment import Environment
from sexpgpu.export.language.equality import equal
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.library import library
from sexpgpu.export.language.reader import read
from sexpgpu.export.language.values import show
from sexpgpu.schemas.errors import SexpgpuError, Source
from support.harness import assert_close
from support.programs import computed, session

FOLDER = Path(__file__).parent / "suite"
ASSERTIONS = ("assert-output", "assert-error", "assert-invalid")


def forms_of(path: Path) -> list[Datum]:
    return read(path.read_bytes(), str(path))


def assertion_of(form: Datum) -> str | None:
    """The name of the assertion that a form is."""
    if isinstance(form, ListDatum) and form.items and isinstance(form.items[0], Symbol):
        name = form.items[0].name
        return name if name in ASSERTIONS else None
    return None


def assertions() -> list[object]:
    return [
        pytest.param(path, index, id=f"{path.name}:{form.span.line}")
        for path in sorted(FOLDER.glob("**/*.sx"))
        for index, form in enumerate(forms_of(path))
        if assertion_of(form) and form.span is not None
    ]


class Program:
    """The forms of a suite file, evaluated up to some form."""

    def __init__(self, path: Path) -> None:
        self.forms = forms_of(path)
        self.computes = path.parent.name == "tensors"
        if self.computes:
            self.evaluator, self.environment, _ = session()
        else:
            self.evaluator = Evaluator()
            self.environment = self.evaluator.environment(library())
        self.next = 0

    def advance(self, index: int) -> None:
        while self.next < index:
            if assertion_of(self.forms[self.next]) is None:
                self.evaluator.run_form(self.forms[self.next], self.environment)
            self.next += 1

    def value(self, datum: Datum) -> object:
        """The value of an expression; of a tensor, its numbers."""
        value = self.evaluator.evaluate(datum, self.environment)
        return computed(value, self.environment) if self.computes else value

    def scratch(self) -> Environment:
        """The definitions so far, for forms whose own are thrown away."""
        environment = self.evaluator.environment(self.environment.top.values)
        environment.top.own.update(self.environment.top.own)
        return environment

    def fail(self, forms: tuple[Datum, ...]) -> SexpgpuError:
        """The error of the last form; those before it must not fail."""
        environment = self.scratch()
        for form in forms[:-1]:
            self.evaluator.run_form(form, environment)
        with pytest.raises(SexpgpuError) as raised:
            self.evaluator.run_form(forms[-1], environment)
        return raised.value

    def fail_to_read(self, text: str) -> SexpgpuError:
        with pytest.raises(SexpgpuError) as raised:
            self.evaluator.run(Source("text", text), self.scratch())
        return raised.value


_programs: dict[Path, Program] = {}


@pytest.mark.parametrize(("path", "index"), assertions())
def test_assertion(path: Path, index: int) -> None:
    program = _programs.get(path)
    # A test that is run alone, or out of order, starts the file anew.
    if program is None or program.next > index:
        program = _programs[path] = Program(path)
    program.advance(index)
    form = program.forms[index]
    assert isinstance(form, ListDatum)
    program.evaluator.steps_left = program.evaluator.limits.steps
    if assertion_of(form) == "assert-output":
        check_output(program, form)
    else:
        check_error(program, form)


def check_output(program: Program, form: ListDatum) -> None:
    _, expression, expected = form.items
    came, wanted = program.value(expression), program.value(expected)
    if program.computes:
        assert_same(program.evaluator, came, wanted)
        return
    same = equal(program.evaluator, came, wanted, None) or show(came) == show(wanted) == "nan"
    assert same, f"{show(came)} came, {show(wanted)} was expected"


def assert_same(evaluator: Evaluator, came: object, wanted: object) -> None:
    """Equal, and of tensors the dtype and shape too, and the numbers within its tolerance."""
    if isinstance(came, np.ndarray) and isinstance(wanted, np.ndarray):
        assert_close(came, wanted)
    elif isinstance(came, tuple) and isinstance(wanted, tuple):
        for part, other in zip(came, wanted, strict=True):
            assert_same(evaluator, part, other)
    else:
        assert equal(evaluator, came, wanted, None), f"{came} came, {wanted} was expected"


def check_error(program: Program, form: ListDatum) -> None:
    name, parts, *forms = form.items
    assert isinstance(parts, Literal)
    if name == Symbol("assert-invalid"):
        text = forms[0]
        assert isinstance(text, Literal)
        error = program.fail_to_read(str(text.value))
    else:
        assert forms, "no form that could fail"
        error = program.fail(tuple(forms))
        assert error.span is not None, "the error has no place"
    for part in str(parts.value).split("|"):
        assert part in said(error)


def said(error: SexpgpuError) -> str:
    """All that an error says, but not the line of source it shows: that holds the part itself."""
    shown = error.render().splitlines()
    return "\n".join([line for line in shown if not re.match(r" *[0-9]* *\|", line)])


def test_every_file_asserts() -> None:
    paths = sorted(FOLDER.glob("**/*.sx"))
    assert len(paths) >= 12
    for path in paths:
        assert any(assertion_of(form) for form in forms_of(path)), path
