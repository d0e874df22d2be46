"""Pruning to the outputs that are wanted."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.passes.prune import remove_dead, select_outputs
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import assert_same
from support.programs import traced

PROGRAM = """
(def record (fields :x (list f32 4) :y (list f32 4)))
(defmodel net ()
  (parts a (linear 4 3) b (linear 4 2) unread (param (list 7)))
  (apply (x y) (list :logits (a x) :aux (list (b y) (a y)) :given x)))
(def model (net))"""


@pytest.fixture
def graph() -> Graph:
    return traced(PROGRAM)[0]


def test_only_what_the_output_needs_is_left(graph: Graph) -> None:
    pruned = select_outputs(graph, ["logits"])
    assert list(pruned.outputs) == ["logits"]
    assert [value.name for value in pruned.inputs] == ["inputs.0"]
    assert list(pruned.weights) == ["a.w", "a.b"]
    assert len(pruned.nodes) == 2


def test_outputs_stand_in_the_models_order(graph: Graph) -> None:
    pruned = select_outputs(graph, ["aux.1", "logits", "aux.1"])
    assert list(pruned.outputs) == ["logits", "aux.1"]


def test_the_values_stay_the_same(graph: Graph) -> None:
    weights = traced(PROGRAM)[1]
    x = {f"inputs.{i}": np.full((2, 4), i + 0.5, np.float32) for i in range(2)}
    whole = evaluate(graph, x, weights)
    for name, want in whole.items():
        assert_same(evaluate(select_outputs(graph, [name]), x, weights)[name], want)


def test_an_output_that_is_an_input_needs_no_node(graph: Graph) -> None:
    pruned = select_outputs(graph, ["given"])
    assert (pruned.nodes, pruned.weights) == ([], {})
    assert [value.name for value in pruned.inputs] == ["inputs.0"]


def test_the_graph_itself_is_left_as_it_was(graph: Graph) -> None:
    before = (list(graph.nodes), dict(graph.weights), dict(graph.outputs), list(graph.inputs))
    select_outputs(graph, ["logits"])
    assert before == (graph.nodes, graph.weights, graph.outputs, graph.inputs)


def test_an_output_that_the_model_does_not_have(graph: Graph) -> None:
    with pytest.raises(SexpgpuError) as caught:
        select_outputs(graph, ["logit"])
    error = caught.value
    assert error.code == "E-EXPORT-002"
    assert error.expected == "one of logits, aux.0, aux.1, given"
    assert error.help == "did you mean `logits`?"


def test_dead_code_goes_and_inputs_stay(graph: Graph) -> None:
    graph.outputs = {"given": graph.inputs[0]}
    alive = remove_dead(graph)
    assert (alive.nodes, alive.weights) == ([], {})
    assert alive.inputs == graph.inputs
    assert remove_dead(graph, keep_inputs=False).inputs == graph.inputs[:1]
