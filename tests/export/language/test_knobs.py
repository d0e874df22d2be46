"""Knobs and variants: where a value comes from, and what may not be given."""

from __future__ import annotations

import time

import pytest

from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.knobs import read_override
from sexpgpu.schemas.errors import SexpgpuError
from support.programs import place, program, program_error

HEAD = "(def record (fields :x (list f32 8)))\n(defn model (x) x)\n"
KNOBS = (
    HEAD + '(defknob dim 32 "width")\n(defknob rate 0.5)\n(defknob name "a")\n'
    "(defknob act :relu)\n(defknob sizes (list 1 2))\n(defknob deep true)\n"
    "(defknob any nil)\n(defknob kind bf16)\n(defvariant wide :dim 64 :rate 1)"
)


def values(variant: str | None = None, **knobs: object) -> dict[str, object]:
    return {name: k.value for name, k in program(KNOBS, variant, knobs).knobs.items()}


def error_of(code: str, text: str, variant: str | None = None, **knobs: object) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        program(text, variant, knobs)
    assert caught.value.code == code, caught.value.render()
    return caught.value


# Where values come from


def test_knobs_have_their_defaults() -> None:
    assert values() == {
        "dim": 32,
        "rate": 0.5,
        "name": "a",
        "act": Keyword("relu"),
        "sizes": (1, 2),
        "deep": True,
        "any": None,
        "kind": DType.BF16,
    }


def test_a_variant_comes_before_defaults_and_a_knob_given_before_both() -> None:
    assert values("wide")["dim"] == 64
    assert values("wide", dim=48)["dim"] == 48
    assert values(None, dim=48)["dim"] == 48


def test_a_knob_keeps_its_default_and_what_it_is_for() -> None:
    knob = program(KNOBS, "wide").knobs["dim"]
    assert (knob.default, knob.value, knob.about) == (32, 64, "width")


def test_a_knob_is_a_name_of_the_program() -> None:
    text = HEAD + "(defknob dim 4)\n(def l (linear 8 (* 2 dim)))"
    assert program(text, knobs={"dim": 5}).parameters()["l.w"].type.shape == (8, 10)


def test_a_default_may_speak_of_knobs_before_it() -> None:
    text = HEAD + "(defknob dim 4)\n(defknob hidden (* 4 dim))"
    assert program(text, knobs={"dim": 5}).knobs["hidden"].value == 20


def test_a_variant_may_stand_before_its_knobs() -> None:
    text = "(defvariant wide :dim (* 2 32))\n" + HEAD + "(defknob dim 4)"
    assert program(text, "wide").knobs["dim"].value == 64


# Kinds


@pytest.mark.parametrize(
    ("knob", "given", "value"),
    [
        ("rate", 2, 2.0),
        ("act", "gelu", Keyword("gelu")),
        ("act", Keyword("gelu"), Keyword("gelu")),
        ("kind", "f32", DType.F32),
        ("kind", DType.F64, DType.F64),
        ("any", 3, 3),
        ("any", (1, "x"), (1, "x")),
        ("sizes", (), ()),
        ("deep", False, False),
    ],
)
def test_what_fits_a_default(knob: str, given: object, value: object) -> None:
    found = values(None, **{knob: given})[knob]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("knob", "given", "message", "came"),
    [
        ("dim", 48.0, "is a whole number", "48.0, a float"),
        ("dim", "x", "is a whole number", '"x", a string'),
        ("dim", True, "is a whole number", "true, a boolean"),
        ("dim", None, "is a whole number", "nil"),
        ("rate", True, "is a float", "true, a boolean"),
        ("name", 48, "is a string", "48, a whole number"),
        ("name", Keyword("a"), "is a string", ":a, a keyword"),
        ("act", 1, "is a keyword", "1, a whole number"),
        ("sizes", 1, "is a list of 2", "1, a whole number"),
        ("deep", 1, "is a boolean", "1, a whole number"),
        ("kind", "f16", "is a dtype", '"f16", a string'),
        ("name", DType.F32, "is a string", "f32, a dtype"),
    ],
)
def test_another_kind_than_the_default(knob: str, given: object, message: str, came: str) -> None:
    error = error_of("E-KNOB-003", KNOBS, None, **{knob: given})
    assert error.message == f"the knob `{knob}` {message}"
    assert error.came == came
    assert error.expected is not None
    assert "such as its default" in error.expected


def test_a_number_given_for_a_string_is_told_of_quotes() -> None:
    assert error_of("E-KNOB-003", KNOBS, None, name=48).help == (
        'a string is written in quotes: "48"'
    )


def test_another_kind_in_a_variant_is_shown_at_its_value() -> None:
    text = HEAD + "(defknob dim 4)\n(defvariant wide :dim 4.5)"
    assert place(error_of("E-KNOB-003", text, "wide")) == (4, 23, "4.5")
    assert program(text).knobs["dim"].value == 4


@pytest.mark.parametrize(
    "default", ["(fn (x) x)", "(linear 8 8)", "(list 1 model)", "(zeros 2)", "'x"]
)
def test_a_default_that_no_checkpoint_could_hold(default: str) -> None:
    error = program_error(HEAD + f"(defknob k {default})", "E-TYPE-001")
    assert place(error) == (3, 12, default)


@pytest.mark.parametrize("leaf", ["1", "(list)"])
def test_a_default_without_bound(leaf: str) -> None:
    started = time.process_time()
    default = f"(fold (fn (t i) (list t t)) {leaf} (range 60))"
    program_error(HEAD + f"(defknob k {default})", "E-TYPE-001")
    program_error(HEAD + "(defknob k (list 1 (list 2 (list 3 (list 4)))))", "E-TYPE-001")
    assert program(HEAD + "(defknob k (list 1 (list 2 (list 3))))").knobs["k"].value is not None
    assert time.process_time() - started < 5


# What is not there


def test_a_knob_that_is_not_there() -> None:
    error = error_of("E-KNOB-001", KNOBS, None, dims=3)
    assert error.message == "the program has no knob `dims`"
    assert error.expected == "dim, rate, name, act, sizes, deep, any, kind"
    assert error.help == "did you mean `dim`?"
    error = error_of("E-KNOB-001", HEAD, None, dims=3)
    assert error.expected == "a program with `defknob`"


def test_a_variant_of_a_knob_that_is_not_there_is_wrong_even_when_it_is_not_chosen() -> None:
    error = error_of("E-KNOB-001", HEAD + "(defknob dim 4)\n(defvariant wide :dims 64)")
    assert place(error) == (4, 18, ":dims")


def test_a_variant_that_is_not_there() -> None:
    error = error_of("E-KNOB-002", KNOBS, "wid")
    assert error.message == "the program has no variant `wid`"
    assert error.expected == "wide"
    assert error.help == "did you mean `wide`?"
    assert error_of("E-KNOB-002", HEAD, "wide").expected == "a program with `defvariant`"


# Forms


@pytest.mark.parametrize(
    ("form", "message", "under"),
    [
        ("(defknob)", "`defknob` has a name and a default", "(defknob)"),
        ("(defknob k)", "`defknob` has a name and a default", "(defknob k)"),
        ('(defknob k 1 "a" 2)', "`defknob` has a name and a default", '(defknob k 1 "a" 2)'),
        ("(defknob 1 2)", "`1` is not a name", "1"),
        ("(defknob if 2)", "`if` is a special form and cannot be bound", "if"),
        ("(defknob k 1 2)", "what a knob is for is a string", "2"),
        ("(defvariant)", "`defvariant` has a name, knobs and values", "(defvariant)"),
        ("(defvariant 1)", "`defvariant` has a name, knobs and values", "(defvariant 1)"),
        ("(defvariant v :k)", "the knob `:k` has no value", ":k"),
        ("(defvariant v k 1)", "a knob is named by a keyword", "k"),
    ],
)
def test_malformed(form: str, message: str, under: str) -> None:
    error = program_error(HEAD + form, "E-FORM-001")
    assert error.message == message
    assert place(error)[::2] == (3, under)


@pytest.mark.parametrize(
    ("text", "under"),
    [
        ("(defknob k 1)\n(defknob k 2)", "k"),
        ("(defknob k 1)\n(def k 2)", "k"),
        ("(defknob k 1)\n(defvariant v :k 1 :k 2)", ":k"),
        ("(defvariant v)\n(defvariant v)", "v"),
    ],
)
def test_a_name_given_twice(text: str, under: str) -> None:
    error = program_error(HEAD + text, "E-NAME-002")
    assert place(error)[::2] == (4, under)


def test_variants_know_nothing_of_the_program() -> None:
    error = program_error(HEAD + "(def base 4)\n(defvariant v :k base)", "E-NAME-001")
    assert error.notes == ["variants are read before the program runs, and know none of it"]


# The command line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dim=48", 48),
        ("dim=-1.5e3", -1500.0),
        ("dim=true", True),
        ("dim=nil", None),
        ("dim=:gelu", Keyword("gelu")),
        ("dim=gelu", "gelu"),
        ("dim=data/verses.txt", "data/verses.txt"),
        ('dim="48"', "48"),
        ("dim=a b", "a b"),
        ("dim=1.txt", "1.txt"),
        ("dim=", ""),
        ("dim=a=b", "a=b"),
        ("dim=(list 1 2.5 (list :a))", (1, 2.5, (Keyword("a"),))),
        ("dim=(list x)", "(list x)"),
        ("dim=(+ 1 2)", "(+ 1 2)"),
        ("dim=(list", "(list"),
    ],
)
def test_an_override_is_read_as_the_language_writes_it(text: str, value: object) -> None:
    name, found = read_override(text)
    assert name == "dim"
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["dim", "=3", ""])
def test_an_override_that_sets_no_knob(text: str) -> None:
    with pytest.raises(SexpgpuError) as caught:
        read_override(text)
    assert caught.value.code == "E-USAGE-001"
    assert caught.value.exit_code == 2
