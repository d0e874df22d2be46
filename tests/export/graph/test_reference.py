"""The reference evaluator: values node by node, checked, and let go when nothing needs them."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.graph import Graph, Node, Value, make_node
from sexpgpu.export.graph.reference import Evaluation, batch_of, evaluate, evaluate_node, resolve
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.architectures import ARCHITECTURES
from support.arrays import assert_same
from support.programs import GPT, traced

TOKENS = {"inputs": np.arange(12, dtype=np.int32)[None] % 40}


def test_a_model_by_hand() -> None:
    graph, weights = traced("""
(def record (fields :x (list f32 3)))
(defmodel net () (parts l (linear 3 2)) (apply (x) (list :y (relu (l x)) :x x)))
(def model (net))""")
    x = np.float32([[1, -2, 3], [0, 1, 0]])
    found = evaluate(graph, {"inputs": x}, weights)
    np.testing.assert_allclose(found["y"], np.maximum(x @ weights["l.w"] + weights["l.b"], 0))
    assert found["x"] is x
    assert list(found) == ["y", "x"]


def test_weights_may_be_read_when_they_are_needed() -> None:
    graph, weights = traced(GPT)
    read: list[str] = []

    def reader(path: str) -> Array:
        read.append(path)
        return weights[path]

    assert_same(
        evaluate(graph, TOKENS, reader)["output"], evaluate(graph, TOKENS, weights)["output"]
    )
    assert set(read) == set(weights)


def test_values_are_let_go_when_nothing_reads_them() -> None:
    graph, weights = traced(GPT)
    evaluation = Evaluation(graph, TOKENS, weights)
    alive: list[weakref.ref[Array]] = []
    most = 0
    while evaluation.step():
        node = graph.nodes[evaluation.count - 1]
        for value in node.results:
            if value in evaluation:
                alive.append(weakref.ref(evaluation[value]))
        most = max(most, sum(ref() is not None for ref in alive))
    assert most < 12
    assert sum(ref() is not None for ref in alive) <= 2


def test_it_can_be_stopped_and_looked_at() -> None:
    graph, weights = traced(GPT)
    evaluation = Evaluation(graph, TOKENS, weights)
    for count in range(1, 6):
        assert evaluation.step()
        assert evaluation.count == count
    done = graph.nodes[4].results[0]
    assert evaluation[done].shape == (1, *[d for d in done.type.shape if isinstance(d, int)])
    later = graph.nodes[20].results[0]
    assert later not in evaluation
    assert graph.weights["tok"] in evaluation
    with pytest.raises(KeyError):
        evaluation[later]
    while evaluation.step():
        pass
    assert not evaluation.step()
    assert evaluation.outputs()["output"].shape == (1, 12, 40)


def test_the_batch_is_read_off_the_inputs() -> None:
    batch = Batch(3)
    graph = Graph(inputs=[Value(TensorType(DType.F32, (2, batch)), name="x")])
    assert batch_of(graph, {"x": np.zeros((2, 12))}) == 4
    assert batch_of(Graph(), {}) == 1
    graph, weights = traced(GPT)
    tokens = np.zeros((5, 12), np.int32)
    assert evaluate(graph, {"inputs": tokens}, weights)["output"].shape == (5, 12, 40)


def test_attributes_hold_numbers_for_the_batch() -> None:
    given = {
        "shape": (Batch(2), 3),
        "axis": 1,
        "pads": ((Batch(), 0), 1),
        "name": "x",
        "none": None,
    }
    assert resolve(given, 5) == {
        "shape": (10, 3),
        "axis": 1,
        "pads": ((5, 0), 1),
        "name": "x",
        "none": None,
    }


def test_a_body_is_told_the_batch() -> None:
    graph, weights = traced(ARCHITECTURES["scan"])
    (scan,) = [node for node in graph.nodes if node.operation.name == "scan"]
    assert resolve(scan.attributes, 3)["batch"] == 3
    x = {"inputs": np.random.default_rng(0).normal(size=(3, 12, 16)).astype(np.float32)}
    together = evaluate(graph, x, weights)["output"]
    for i in range(3):
        alone = evaluate(graph, {"inputs": x["inputs"][i : i + 1]}, weights)["output"]
        np.testing.assert_allclose(together[i : i + 1], alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", [np.zeros((2, 3), np.float64), np.zeros((2, 4), np.float32)])
def test_an_operation_that_does_not_keep_its_word(wrong: Array) -> None:
    operation = all_operations()["neg"]
    node = make_node(operation, [Value(TensorType(DType.F32, (Batch(), 3)))], {})

    class Liar(type(operation)):  # type: ignore[misc]
        def evaluate(self, inputs: Any, attributes: Any) -> Any:
            return [wrong]

    lie = Node(Liar(), node.inputs, {}, node.result_types)
    with pytest.raises(AssertionError, match="inference says"):
        evaluate_node(lie, [np.zeros((2, 3), np.float32)], 2)


def test_an_index_out_of_range() -> None:
    graph, weights = traced(GPT)
    with pytest.raises(SexpgpuError) as caught:
        evaluate(graph, {"inputs": np.full((1, 12), 40, np.int32)}, weights)
    assert caught.value.code == "E-VALUE-001"


def test_warnings_of_numpy_are_not_a_models() -> None:
    graph, weights = traced("""
(def record (fields :x (list f32 3)))
(defmodel net () (parts) (apply (x) (log (/ x 0.0))))
(def model (net))""")
    with np.errstate(all="raise"):
        found = evaluate(graph, {"inputs": np.float32([[-1, 0, 1]])}, weights)
    assert not np.isfinite(found["output"]).any()
