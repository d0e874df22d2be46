"""Errors of rounding drawn at random: how large, where, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.perturbation import Perturbation
from support.arrays import assert_same
from support.programs import GPT, traced


def outputs(graph: Graph, inputs: Mapping[str, Array], weights: Mapping[str, Array], seed: int = 0):
    evaluation = Perturbation(graph, inputs, weights, seed=seed)
    while evaluation.step():
        pass
    return evaluation.outputs()


def moved(expression: str, x: Array, dtype: str = "f32") -> tuple[Array, Array]:
    """The output of an expression of x, and how far it moves."""
    graph, weights = traced(f"""
(def record (fields :x (list {dtype} {x.shape[1]})))
(defmodel net () (parts) (apply (x) {expression}))
(def model (net))""")
    want = evaluate(graph, {"inputs": x}, weights)["output"]
    found = outputs(graph, {"inputs": x}, weights)["output"]
    with np.errstate(invalid="ignore"):
        return want, np.abs(found.astype(np.float64) - want.astype(np.float64))


X = np.random.default_rng(0).normal(size=(4, 256)).astype(np.float32)


@pytest.mark.parametrize("expression", ["(abs x)", "(relu (neg x))", "(slice x :axis 1 :from 2)",
                                        "(maximum x (flip x))", "(sort x)"])  # fmt: skip
def test_what_rounds_nothing_does_not_move(expression: str) -> None:
    assert not moved(expression, X)[1].any()


@pytest.mark.parametrize("expression", ["(exp x)", "(* x x)", "(/ 1.0 x)"])
def test_functions_move_by_a_few_roundings(expression: str) -> None:
    want, distance = moved(expression, X)
    relative = distance / np.abs(want)
    assert 2.0**-24 < relative.max() < 2.0**-18


def test_f64_moves_by_its_own_roundings() -> None:
    want, distance = moved("(exp x)", X.astype(np.float64), "f64")
    assert 2.0**-53 < (distance / want).max() < 2.0**-47


def test_bf16_moves_to_a_neighbour() -> None:
    want, distance = moved("(exp x)", X.astype(ml_dtypes.bfloat16), "bf16")
    assert 2.0**-9 < (distance / want.astype(np.float64)).max() < 2.0**-6


def test_functions_that_saturate_move_by_roundings_of_one() -> None:
    want, distance = moved("(sigmoid x)", np.full((1, 64), -12, np.float32))
    assert (distance / want).max() > 1e-3
    assert distance.max() < 2.0**-18


@pytest.mark.parametrize(
    ("expression", "x"),
    [
        ("(sqrt (sigmoid x))", -25.0),
        ("(sqrt (softplus x))", -25.0),
        ("(acos (tanh x))", 12.0),
        ("(acos (erf x))", 5.0),
        ("(asin (sin x))", np.pi / 2),
        ("(asin (cos x))", 0.0),
        ("(acos (softmax (unsqueeze x -1)))", 0.0),
        ("(sqrt (- 1 (sigmoid x)))", 30.0),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_results_stay_where_the_function_has_them(expression: str, x: float, dtype: str) -> None:
    """Outside they would become NaN, as no runtime's do, and explain nothing."""
    number = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}[dtype]
    want, distance = moved(expression, np.full((1, 64), x, number), dtype)
    assert np.isfinite(want.astype(np.float64)).all()
    assert np.isfinite(distance).all()


def test_a_difference_that_cancels_moves_as_much_as_its_terms() -> None:
    # The mean of equal numbers is rounded, and what is left of them is rounding alone.
    _, distance = moved("(layer-normalize (* x 0.1))", np.full((1, 256), 8, np.float32))
    assert distance.max() > 1e-6


def test_numbers_that_are_not_finite_stay() -> None:
    x = np.float32([[np.inf, -np.inf, np.nan, 1]])
    want, _ = moved("(* x 2.0)", x)
    found = outputs(*traced_double(), seed=1)["output"]
    assert_same(np.isfinite(found), np.isfinite(want))


def traced_double() -> tuple[Graph, dict[str, Array], dict[str, Array]]:
    graph, weights = traced("""
(def record (fields :x (list f32 4)))
(defmodel net () (parts) (apply (x) (* x 2.0)))
(def model (net))""")
    return graph, {"inputs": np.float32([[np.inf, -np.inf, np.nan, 1]])}, weights


def test_every_seed_draws_others() -> None:
    graph, weights = traced(GPT)
    inputs = {"inputs": np.arange(12, dtype=np.int32)[None]}
    a, b, again = (outputs(graph, inputs, weights, seed)["output"] for seed in (0, 1, 0))
    assert a.tobytes() == again.tobytes() != b.tobytes()
