"""Schedules, against formulas of NumPy over every step of a run and past its end."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.export.language.recipes import RECIPES
from sexpgpu.tools.train import schedule
from sexpgpu.tools.train.schedule import Schedule, make_schedule
from support.recipes import recipe

STEPS, PEAK = 40, 0.3
ALL = np.arange(STEPS + 20)


def made(text: str, steps: int = STEPS) -> Schedule:
    return make_schedule(recipe(text), steps, PEAK)


def warmed(warm_up: int) -> np.ndarray:
    """Equal strides from 0, which is left out, to 1 at the end of the warm-up."""
    rates = np.ones(len(ALL))
    rates[: warm_up + 1] = np.linspace(0, 1, warm_up + 2)[1:]
    return rates


def half_wave(start: int, end: int, final: float) -> np.ndarray:
    rates = np.full(len(ALL), final)
    rates[:start] = 1.0
    inside = np.arange(start, end)
    angle = math.pi * (inside - start) / (end - start)
    rates[start:end] = final + 0.5 * (1 - final) * (1 + np.cos(angle))
    return rates


def line(start: int, end: int, final: float) -> np.ndarray:
    return np.interp(ALL, [start, end], [1.0, final])


EXPECTED: list[tuple[str, Callable[[], np.ndarray]]] = [
    ("(constant-schedule)", lambda: warmed(0)),
    ("(constant-schedule :warm-up 7)", lambda: warmed(7)),
    ("(warm-up 12)", lambda: warmed(12)),
    ("(cosine)", lambda: half_wave(0, STEPS, 0.0)),
    ("(cosine :warm-up 9 :final 0.1)", lambda: warmed(9) * half_wave(9, STEPS, 0.1)),
    ("(cosine :steps 25 :warm-up 3)", lambda: warmed(3) * half_wave(3, 25, 0.0)),
    ("(linear-decay)", lambda: line(0, STEPS, 0.0)),
    ("(linear-decay :warm-up 5 :final 0.25)", lambda: warmed(5) * line(5, STEPS, 0.25)),
    ("(linear-decay :steps 50)", lambda: line(0, 50, 0.0)),
    ("(steps (list 10 30) 0.5)", lambda: np.repeat([1.0, 0.5, 0.25], [10, 20, 30])),
    (
        "(steps (list 4 20) 0.1 :warm-up 8)",
        lambda: warmed(8) * np.repeat([1, 0.1, 0.01], [4, 16, 40]),
    ),
    ("(steps (list) 0.5)", lambda: warmed(0)),
    ("(steps (list 3) 0)", lambda: np.repeat([1.0, 0.0], [3, 57])),
]


@pytest.mark.parametrize(("text", "expected"), EXPECTED, ids=[text for text, _ in EXPECTED])
def test_every_step(text: str, expected: Callable[[], np.ndarray]) -> None:
    rate, wanted = made(text), PEAK * expected()
    shown = [rate(int(step)) for step in ALL]
    assert all(type(value) is float for value in shown)
    np.testing.assert_allclose(shown, wanted, rtol=1e-12, atol=1e-15)
    with jax.enable_x64(True):
        compiled = jax.jit(jax.vmap(rate))(jnp.asarray(ALL, jnp.int32))
        assert compiled.dtype == jnp.float64
        np.testing.assert_allclose(compiled, wanted, rtol=1e-12, atol=1e-15)
    with jax.enable_x64(False):
        compiled = jax.jit(jax.vmap(rate))(jnp.asarray(ALL, jnp.int32))
        assert compiled.dtype == jnp.float32
        np.testing.assert_allclose(compiled, wanted, rtol=1e-5, atol=1e-7)


def test_every_schedule_is_tested() -> None:
    names = {name for name, kind, _ in RECIPES if kind == "schedule"}
    assert {text[1:].split(" ")[0].rstrip(")") for text, _ in EXPECTED} == names
    documented = inspect.getdoc(schedule)
    assert documented is not None
    assert all(f"\n    {name} " in documented for name in names)


def test_without_a_schedule_the_rate_is_constant() -> None:
    rate = make_schedule(None, STEPS, PEAK)
    assert [rate(0), rate(STEPS - 1), rate(10**9)] == [PEAK, PEAK, PEAK]


def test_the_first_step_and_the_end_of_the_warm_up() -> None:
    for text in ("(cosine :warm-up 9)", "(linear-decay :warm-up 9)", "(warm-up 9)"):
        rate = made(text)
        assert rate(0) == pytest.approx(PEAK / 10)
        assert rate(8) < rate(9) == PEAK
    assert made("(cosine)")(0) == made("(linear-decay)")(0) == PEAK


@pytest.mark.parametrize("name", ["cosine", "linear-decay"])
def test_the_last_step_is_above_what_follows_it(name: str) -> None:
    rate = made(f"({name} :final 0.5)")
    assert rate(STEPS - 1) > rate(STEPS) == PEAK * 0.5
    assert rate(STEPS + 1) == rate(10**9) == PEAK * 0.5


@pytest.mark.parametrize("name", ["cosine", "linear-decay"])
def test_a_fall_that_would_end_within_the_warm_up_follows_it(name: str) -> None:
    rate = made(f"({name} :warm-up 8)", steps=5)
    assert rate(4) == pytest.approx(PEAK * 5 / 9)
    assert rate(8) == PEAK
    assert rate(9) == 0.0


def test_a_warm_up_longer_than_any_run() -> None:
    rate = made(f"(cosine :warm-up {2**63 - 1})")
    assert 0 < rate(1) < 1e-18
    assert float(jax.jit(rate)(jnp.array(1))) == pytest.approx(rate(1), rel=1e-5, abs=0)


def test_a_fall_of_no_steps() -> None:
    assert [made("(cosine :steps 0)")(step) for step in (0, 1, 2)] == [PEAK, 0.0, 0.0]
