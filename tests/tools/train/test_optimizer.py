"""Optimizers, step by step against NumPy: each formulation here is that of its paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from sexpgpu.export.language.recipes import RECIPES
from sexpgpu.tools.train.optimizer import make_optimizer
from sexpgpu.tools.train.schedule import make_schedule
from support.recipes import Arrays, descended, drawn, recipe, run_of

SHAPES = {
    "blocks.0.w": (4, 6),
    "blocks.0.b": (6,),
    "kernel": (3, 2, 2, 5),
    "scale": (),
    "factored": (130, 150),
    "stacked": (140, 3, 128),
}
STEPS = 20

Options = Mapping[str, Any]
Trajectory = Iterator[np.ndarray]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def decay_of(options: Options, w: np.ndarray) -> float:
    """Only what has two axes decays."""
    return options["weight-decay"] if w.ndim >= 2 else 0.0


def sgd(w: np.ndarray, gradients: Sequence[np.ndarray], rates: Any, o: Options) -> Trajectory:
    """The gradient of loss + weight_decay / 2 · ‖w‖²"""
    for g, rate in zip(gradients, rates, strict=True):
        w = w - rate * (g + decay_of(o, w) * w)
        yield w


def momentum(w: np.ndarray, gradients: Sequence[np.ndarray], rates: Any, o: Options) -> Trajectory:
    """Sutskever et al., 2013, equations 1 to 4; the velocity v = -m has no rate in it.

    Nesterov's gradient is taken where the last step led: the parameters kept are those of
    the look-ahead, so that the next step's gradient is theirs (Bengio et al., 2012, section 3.1).
    """
    v = np.zeros_like(w)
    for g, rate in zip(gradients, rates, strict=True):
        slope = g + decay_of(o, w) * w
        v = o["momentum"] * v - slope
        w = w + rate * (o["momentum"] * v - slope if o["nesterov"] else v)
        yield w


def adam(w: np.ndarray, gradients: Sequence[np.ndarray], rates: Any, o: Options) -> Trajectory:
    """Kingma & Ba, 2015, algorithm 1; with a decay Loshchilov & Hutter, 2019, algorithm 2."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    decay = decay_of(o, w) if "weight-decay" in o else 0.0
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = o["beta1"] * m + (1 - o["beta1"]) * g
        v = o["beta2"] * v + (1 - o["beta2"]) * g * g
        m_hat = m / (1 - o["beta1"] ** t)
        v_hat = v / (1 - o["beta2"] ** t)
        w = w - rate * m_hat / (np.sqrt(v_hat) + o["epsilon"]) - rate * decay * w
        yield w


def lion(w: np.ndarray, gradients: Sequence[np.ndarray], rates: Any, o: Options) -> Trajectory:
    """Chen et al., 2023, algorithm 2"""
    m = np.zeros_like(w)
    for g, rate in zip(gradients, rates, strict=True):
        c = o["beta1"] * m + (1 - o["beta1"]) * g
        w = w - rate * (np.sign(c) + decay_of(o, w) * w)
        m = o["beta2"] * m + (1 - o["beta2"]) * g
        yield w


def adafactor(w: np.ndarray, gradients: Sequence[np.ndarray], rates: Any, o: Options) -> Trajectory:
    """Shazeer & Stern, 2018, algorithms 4 (factored, with sums) and 5, β₂ of section 7.2"""
    longest = sorted(range(w.ndim), key=lambda axis: w.shape[axis])[-2:]
    factored = w.ndim >= 2 and all(w.shape[axis] >= 128 for axis in longest)
    v = rows = columns = np.zeros(())
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        beta = 1 - t ** -o["decay"]
        square = g * g + o["epsilon"]
        if factored:
            first, second = longest
            rows = beta * rows + (1 - beta) * square.sum(axis=second, keepdims=True)
            columns = beta * columns + (1 - beta) * square.sum(axis=first, keepdims=True)
            v = rows * columns / rows.sum(axis=first, keepdims=True)
        else:
            v = beta * v + (1 - beta) * square
        u = g / np.sqrt(v)
        u = u / max(1.0, rms(u) / 1.0)
        w = w - max(1e-3, rms(w)) * rate * u
        yield w


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(array**2)))


CASES: list[tuple[str, Callable[..., Trajectory]]] = [
    ("(sgd)", sgd),
    ("(sgd :lr 0.3 :weight-decay 0.1)", sgd),
    ("(momentum)", momentum),
    ("(momentum :lr 0.1 :momentum 0.5 :weight-decay 0.2)", momentum),
    ("(momentum :nesterov true :weight-decay 0.2)", momentum),
    ("(adam)", adam),
    ("(adam :lr 1 :beta1 0.5 :beta2 0.9 :epsilon 0.01)", adam),
    ("(adam :beta1 0 :beta2 0)", adam),
    ("(adamw)", adam),
    ("(adamw :lr 0.1 :beta1 0.8 :beta2 0.95 :epsilon 1e-3 :weight-decay 0.5)", adam),
    ("(lion)", lion),
    ("(lion :lr 0.01 :beta1 0.7 :beta2 0.8 :weight-decay 1)", lion),
    ("(adafactor)", adafactor),
    ("(adafactor :lr 0.1 :decay 0.5 :epsilon 1e-3)", adafactor),
]
SCHEDULES = ["nil", "(cosine :warm-up 5)"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("text", "formula"), CASES, ids=[text for text, _ in CASES])
def test_twenty_steps(text: str, formula: Callable[..., Trajectory], schedule: str) -> None:
    items = f":optimizer {text} :schedule {schedule} :steps {STEPS}"
    parameters, *gradients = drawn(SHAPES, STEPS + 1)
    rate = make_schedule(run_of(items).schedule, STEPS, recipe(text).options["lr"])
    rates = [rate(step) for step in range(STEPS)]
    expected = {
        name: formula(array, [g[name] for g in gradients], rates, recipe(text).options)
        for name, array in parameters.items()
    }
    # Adafactor's β is computed in f32.
    rtol = 1e-6 if formula is adafactor else 1e-9
    for found in descended(items, parameters, gradients):
        for name, array in found.items():
            np.testing.assert_allclose(array, next(expected[name]), rtol=rtol, atol=rtol)


def test_every_optimizer_is_tested() -> None:
    names = {name for name, kind, _ in RECIPES if kind == "optimizer"}
    assert {text[1:].split(" ")[0].rstrip(")") for text, _ in CASES} == names


@pytest.mark.parametrize(("text", "formula"), CASES, ids=[text for text, _ in CASES])
def test_f32_parameters_stay_f32(text: str, formula: Callable[..., Trajectory]) -> None:
    parameters, *gradients = drawn({"w": (4, 6), "b": (6,)}, 4, "f4")
    options = recipe(text).options
    for name, array in parameters.items():
        found = [found[name] for found in descended(f":optimizer {text}", parameters, gradients)]
        wide = [g[name].astype("f8") for g in gradients]
        expected = formula(array.astype("f8"), wide, [options["lr"]] * len(wide), options)
        np.testing.assert_allclose(found, list(expected), rtol=1e-4, atol=1e-5)


def clipped(clip: str, gradient: Arrays) -> Arrays:
    """A step of gradient descent at rate 1 from 0: what is left of the gradient."""
    zeros = {name: np.zeros_like(array) for name, array in gradient.items()}
    (found,) = descended(f":optimizer (sgd :lr 1) :clip {clip}", zeros, [gradient])
    return {name: -array for name, array in found.items()}


def test_the_norm_of_all_gradients_together_is_clipped() -> None:
    gradient = {"a": np.array([3.0, 0.0]), "b": np.array([[4.0]])}
    for clip in ("2", "(clip-norm 2)"):
        found = clipped(clip, gradient)
        np.testing.assert_allclose(found["a"], [1.2, 0.0])
        np.testing.assert_allclose(found["b"], [[1.6]])
    assert clipped("5.5", gradient)["a"].tolist() == [3.0, 0.0]
    nothing = {"a": np.zeros(2), "b": np.zeros((1, 1))}
    assert clipped("2", nothing)["a"].tolist() == [0.0, 0.0]


def test_values_are_clipped_one_by_one() -> None:
    gradient = {"a": np.array([3.0, -0.5, -7.0]), "b": np.array([[1.0]])}
    found = clipped("(clip-value 2)", gradient)
    assert found["a"].tolist() == [2.0, -0.5, -2.0]
    assert found["b"].tolist() == [[1.0]]


def test_adafactor_moves_what_begins_at_zero() -> None:
    (found,) = descended(":optimizer (adafactor :lr 0.5)", {"b": np.zeros(2)}, [{"b": np.ones(2)}])
    np.testing.assert_allclose(found["b"], [-0.5 * 1e-3] * 2)


@pytest.mark.parametrize("name", ["sgd", "momentum"])
def test_the_penalty_is_added_after_clipping(name: str) -> None:
    items = f":optimizer ({name} :lr 1 :weight-decay 0.5) :clip 1"
    parameters = {"w": np.array([[10.0]])}
    (found,) = descended(items, parameters, [{"w": np.array([[100.0]])}])
    np.testing.assert_allclose(found["w"], [[10.0 - 1.0 - 5.0]])


@pytest.mark.parametrize("name", ["adamw", "lion"])
def test_a_decoupled_decay_is_scaled_by_the_rate_alone(name: str) -> None:
    items = f":optimizer ({name} :lr 0.1 :weight-decay 0.5)"
    parameters = {"w": np.array([[10.0]]), "gain": np.array([10.0])}
    still = {"w": np.array([[0.0]]), "gain": np.array([0.0])}
    (found,) = descended(items, parameters, [still])
    np.testing.assert_allclose(found["w"], [[10.0 * (1 - 0.1 * 0.5)]])
    assert found["gain"].tolist() == [10.0]


@pytest.mark.parametrize(("text", "formula"), CASES, ids=[text for text, _ in CASES])
def test_a_model_without_parameters(text: str, formula: object) -> None:
    assert list(descended(f":optimizer {text} :clip 1", {}, [{}])) == [{}]


@pytest.mark.parametrize(("text", "formula"), CASES, ids=[text for text, _ in CASES])
def test_the_same_gradients_give_the_same_bits(text: str, formula: object) -> None:
    parameters, *gradients = drawn({"w": (4, 6), "b": (6,)}, 6, "f4")
    items = f":optimizer {text} :schedule (cosine) :steps 5 :clip 1"
    first, second = (list(descended(items, parameters, gradients))[-1] for _ in range(2))
    assert {n: a.tobytes() for n, a in first.items()} == {n: a.tobytes() for n, a in second.items()}


def test_the_state_is_named_by_its_parts() -> None:
    optimizer = make_optimizer(run_of(":optimizer (adamw) :schedule (cosine) :clip 1"))
    assert list(optimizer.init({})) == ["clip", "adam", "decay", "rate"]
