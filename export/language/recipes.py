"""Optimizers, schedules and ways of clipping, as a program declares them for its run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sexpgpu.export.language.arguments import as_integer, as_number
from sexpgpu.export.language.data import Literal, Symbol
from sexpgpu.export.language.evaluator import OBJECT_COST
from sexpgpu.export.language.signature import signature_of
from sexpgpu.export.language.values import Builtin, Call, portray

#: Name, kind, signature: positional arguments take the name that the signature gives them.
RECIPES = (
    ("sgd", "optimizer", "(&key (lr 0.01) (weight-decay 0.0))"),
    (
        "momentum",
        "optimizer",
        "(&key (lr 0.01) (momentum 0.9) (nesterov false) (weight-decay 0.0))",
    ),
    ("adam", "optimizer", "(&key (lr 0.001) (beta1 0.9) (beta2 0.999) (epsilon 1e-8))"),
    (
        "adamw",
        "optimizer",
        "(&key (lr 0.001) (beta1 0.9) (beta2 0.999) (epsilon 1e-8) (weight-decay 0.01))",
    ),
    ("lion", "optimizer", "(&key (lr 1e-4) (beta1 0.9) (beta2 0.99) (weight-decay 0.0))"),
    ("adafactor", "optimizer", "(&key (lr 0.001) (decay 0.8) (epsilon 1e-30))"),
    ("constant-schedule", "schedule", "(&key (warm-up 0))"),
    ("cosine", "schedule", "(&key (warm-up 0) (final 0.0) steps)"),
    ("linear-decay", "schedule", "(&key (warm-up 0) (final 0.0) steps)"),
    ("warm-up", "schedule", "(steps)"),
    ("steps", "schedule", "(at factor &key (warm-up 0))"),
    ("clip-norm", "clipping", "(norm)"),
    ("clip-value", "clipping", "(value)"),
)

#: Options that count steps, those from 0 up to 1, and those above 0; all others are from 0 on.
_COUNTS = ("warm-up", "steps", "at")
_FRACTIONS = ("momentum", "beta1", "beta2", "decay")
_POSITIVE = ("norm", "value")


@dataclass(frozen=True)
class Recipe:
    """An optimizer, a schedule or a way of clipping: its kind, its name and its numbers."""

    kind: str
    name: str
    options: Mapping[str, Any]

    def describe_value(self) -> str:
        return with_article(self.kind)

    def show_value(self) -> str:
        return f"#<{self.kind} {self.name}>"


def with_article(kind: str) -> str:
    """`an optimizer`, `a schedule`"""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def default_recipe(name: str) -> Recipe:
    """The recipe of this name with the numbers that it has by default."""
    kind, signature = next((kind, text) for known, kind, text in RECIPES if known == name)
    return Recipe(kind, name, _defaults(signature))


def recipe_builtins() -> list[Builtin]:
    """The builtins that make optimizers, schedules and clippings."""
    return [_recipe_builtin(*recipe) for recipe in RECIPES]


def _recipe_builtin(name: str, kind: str, signature: str) -> Builtin:
    required = [s.name for s in signature_of(signature).required if isinstance(s, Symbol)]
    defaults = _defaults(signature)

    def make(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Recipe:
        call.evaluator.charge(OBJECT_COST, call.span)
        options = dict(defaults)
        for index, (option, value) in enumerate(zip(required, positional, strict=True)):
            options[option] = _checked(call, option, value, index)
        for option, value in keywords.items():
            options[option] = _checked(call, option, value, option)
        return Recipe(kind, name, options)

    return Builtin(name, signature, make, with_article(kind))


def _defaults(signature: str) -> dict[str, Any]:
    return {
        key: default.value if isinstance(default, Literal) else None
        for key, default in signature_of(signature).keys.items()
    }


def _checked(call: Call, option: str, value: Any, place: int | str) -> Any:
    """The value of an option: E-TYPE-001 for another kind, E-VALUE-001 out of range."""
    if option == "nesterov":
        if not isinstance(value, bool):
            raise call.wrong_kind(value, place, "true or false")
        return value
    if option == "at":
        if not isinstance(value, tuple):
            raise call.wrong_kind(value, place, "a list of steps")
        steps = tuple([_number(call, option, item, place) for item in value])
        if list(steps) != sorted(set(steps)):
            raise call.error(
                "E-VALUE-001", "the steps of a schedule ascend", place, came=portray(value)
            )
        return steps
    return _number(call, option, value, place)


def _number(call: Call, option: str, value: Any, place: int | str) -> int | float:
    whole = option in _COUNTS
    number = as_integer(call, value, place) if whole else as_number(call, value, place)
    most = 1.0 if option in _FRACTIONS else math.inf
    if not 0 <= number < most or (option in _POSITIVE and number == 0):
        expected = "from 0 up to 1" if option in _FRACTIONS else "from 0 on"
        expected = "above 0" if option in _POSITIVE else expected
        raise call.error(
            "E-VALUE-001",
            f"`{option}` of `{call.name}` is out of range",
            place,
            came=portray(value),
            expected=f"a {'whole' if whole else 'finite'} number {expected}",
        )
    return number
