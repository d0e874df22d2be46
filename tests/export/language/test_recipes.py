"""Optimizers, schedules and clippings as a program declares them."""

from __future__ import annotations

import pytest

from sexpgpu.export.language.recipes import RECIPES, Recipe
from support.programs import failure_of, place, value_of


def recipe(text: str) -> Recipe:
    found = value_of(text)
    assert isinstance(found, Recipe)
    return found


@pytest.mark.parametrize(("name", "kind", "signature"), RECIPES)
def test_every_recipe_has_its_defaults(name: str, kind: str, signature: str) -> None:
    required = {"(steps)": "10", "(norm)": "1.0", "(value)": "1.0"}.get(signature, "")
    if signature.startswith("(at"):
        required = "(list 10 20) 0.1"
    found = recipe(f"({name} {required})")
    assert (found.name, found.kind) == (name, kind)
    assert found.options


def test_what_is_given_takes_the_place_of_defaults() -> None:
    assert recipe("(adamw :lr 3e-4 :weight-decay 0)").options == {
        "lr": 3e-4,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight-decay": 0,
    }
    assert recipe("(steps (list 10 20) 0.1 :warm-up 5)").options == {
        "at": (10, 20),
        "factor": 0.1,
        "warm-up": 5,
    }
    assert recipe("(cosine)").options["steps"] is None
    assert recipe("(momentum :nesterov true)").options["nesterov"] is True


@pytest.mark.parametrize(
    ("text", "code", "under"),
    [
        ("(adam :learning-rate 1e-3)", "E-CALL-003", ":learning-rate"),
        ("(adam 1e-3)", "E-CALL-002", "1e-3"),
        ("(clip-norm)", "E-CALL-002", "(clip-norm)"),
        ('(adam :lr "1e-3")', "E-TYPE-001", '"1e-3"'),
        ("(adam :lr true)", "E-TYPE-001", "true"),
        ("(adam :lr -1)", "E-VALUE-001", "-1"),
        ("(adam :lr inf)", "E-VALUE-001", "inf"),
        ("(adam :lr nan)", "E-VALUE-001", "nan"),
        ("(adam :beta1 1)", "E-VALUE-001", "1"),
        ("(momentum :nesterov 1)", "E-TYPE-001", "1"),
        ("(cosine :warm-up 0.1)", "E-TYPE-001", "0.1"),
        ("(warm-up -1)", "E-VALUE-001", "-1"),
        ("(steps 10 0.1)", "E-TYPE-001", "10"),
        ("(steps (list 20 10) 0.1)", "E-VALUE-001", "(list 20 10)"),
        ("(steps (list 1.5) 0.1)", "E-TYPE-001", "(list 1.5)"),
        ('(clip-value "1")', "E-TYPE-001", '"1"'),
        ("(clip-value 0)", "E-VALUE-001", "0"),
        ("(clip-norm 0.0)", "E-VALUE-001", "0.0"),
    ],
)
def test_what_recipes_refuse(text: str, code: str, under: str) -> None:
    assert place(failure_of(text, code))[2] == under


def test_how_a_recipe_is_shown() -> None:
    assert value_of("(str (adam))") == "#<optimizer adam>"
