"""The operation that went wrong first is named, and where it is written."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.export.language.training import trace_training
from sexpgpu.tools.train.diagnosis import Fault, find_fault
from support.programs import program

HEAD = "(def record (fields :x (list f32 3)))\n(def w (param (list 3) :init (ones)))\n"


def fault(model: str, x: list[float], w: float = 1.0) -> Fault | None:
    training = trace_training(
        program(HEAD + f"(defn model (x) {model})\n(defn loss (p r) (mean p))")
    )
    assert training is not None
    inputs = {"x": jnp.asarray([x], jnp.float32)}
    weights = {"w": jnp.full(3, w, jnp.float32)}
    return find_fault(training.graph, inputs, weights, 1, jax.random.key(0))


def test_all_is_well() -> None:
    assert fault("(* w x)", [1, 2, 3]) is None


@pytest.mark.parametrize(
    ("model", "value", "name"),
    [
        ("(log (* w x))", "NaN", "log"),
        ("(/ (* w x) 0.0)", "an infinity", "/"),
        ("(exp (* w (* x 1000.0)))", "an infinity", "exp"),
        ("(- (exp (* w (* x 1000.0))) (exp (* 1000.0 x)))", "NaN", "-"),
    ],
)
def test_the_first_operation_that_makes_it(model: str, value: str, name: str) -> None:
    found = fault(model, [1, 2, -3] if name == "log" else [1, 2, 3])
    assert found is not None
    assert found.node is not None
    assert (found.value, found.node.operation.name) == (value, name)
    assert found.node.position is not None
    assert found.node.position.line == 3


def test_infinities_of_a_mask_are_none() -> None:
    masked = "(softmax (where (> x 1.5) (* w x) -inf))"
    assert fault(masked, [1, 2, 3]) is None
    found = fault(f"(log (- {masked} 0.5))", [1, 2, 3])
    assert found is not None
    assert found.node is not None
    assert found.node.operation.name == "log"


def test_what_came_in_wrong_is_named() -> None:
    assert fault("(* w x)", [1, np.nan, 3]) == Fault("NaN", name="field `x`")
    assert fault("(* w x)", [1, 2, 3], w=np.nan) == Fault("NaN", name="parameter `w`")
