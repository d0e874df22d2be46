"""Constant folding: the same values, and never more bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.passes.fold import fold_constants
from sexpgpu.export.passes.prune import remove_dead
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import SEEDS, assert_same
from support.programs import traced
from support.random_graphs import OPERATIONS, random_graph


def model(expression: str) -> tuple[Graph, dict[str, Array]]:
    return traced(f"""
(def record (fields :x (list f32 16)))
(defmodel net () (parts w (param (list 16))) (apply (x) {expression}))
(def model (net))""")


def size(graph: Graph, weights: Mapping[str, Array]) -> int:
    """Bytes of the ONNX file, its weights inside."""
    return len(build_model(graph, weights.__getitem__, BuildOptions()).SerializeToString())


def lowered_operators(graph: Graph, weights: Mapping[str, Array]) -> list[str]:
    model = build_model(graph, weights.__getitem__, BuildOptions())
    return [node.op_type for node in model.graph.node]


def names(graph: Graph) -> list[str]:
    return [node.operation.name for node in graph.nodes]


@settings(max_examples=40)
@given(SEEDS)
def test_any_graph_keeps_its_values_and_hardly_grows(seed: int) -> None:
    made = random_graph(seed)
    made.grow(["constant", "full", "iota", "eye"], 4)
    made.values = [value for value in made.values if value.node]
    made.grow(OPERATIONS, 8)
    made.graph.outputs = {f"y{i}": value for i, value in enumerate(made.values[-3:])}
    graph = remove_dead(made.graph)
    feeds = made.feeds(2)
    try:
        want = evaluate(graph, feeds, made.weights)
        folded = fold_constants(graph)
        before = size(graph, made.weights)
    except SexpgpuError:  # an index out of range, or an operation that has no ONNX form
        return
    found = evaluate(folded, feeds, made.weights)
    for name in want:
        assert_same(found[name], want[name])
    # Where nothing is left to do for an output, a node that gives it its name stands there.
    naming = 50 * sum(op == "Identity" for op in lowered_operators(folded, made.weights))
    assert size(folded, made.weights) <= before + naming + 2**14


def test_sums_of_numbers_are_one_constant() -> None:
    graph, _ = model("(+ x (exp (+ (zeros (list 1)) (sqrt (full (list 1) 16.0)))))")
    folded = fold_constants(graph)
    assert names(folded) == ["constant", "+"]
    np.testing.assert_array_equal(folded.nodes[0].attributes["value"], np.exp(np.float32([4])))


def test_a_table_made_by_few_bytes_stays_as_it_is_made() -> None:
    graph, _ = model("(list :y (+ x (sum (full (list 4000 16) 0.5) :axis 0)))")
    assert "full" in names(fold_constants(graph))


def test_a_constant_that_others_read_is_not_written_twice() -> None:
    table = "(tensor (list " + " ".join(f"{i}.5" for i in range(64)) + "))"
    graph, weights = model(f"""
(let (t {table} cut (fn (y) (slice y :axis 0 :to 16)))
  (+ (* x (cut (exp (neg t)))) (+ (cut (sin t)) (cut t))))""")
    assert size(fold_constants(graph), weights) <= size(graph, weights)


def test_a_small_table_is_computed_whatever_it_replaces() -> None:
    # OpenVINO leaves out the Abs of a row that it computes itself.
    graph, _ = model("(let (t (- (cast (iota 16) f32) 9.0)) (+ x (* (abs t) (sign t))))")
    folded = fold_constants(graph)
    assert names(folded) == ["constant", "+"]
    t = np.arange(16, dtype=np.float32) - 9
    np.testing.assert_array_equal(folded.nodes[0].attributes["value"], t)


def test_what_a_call_gives_is_not_folded() -> None:
    graph, _ = model("(* (+ x w) (zeros (list (dim x 0) 16)))")
    assert names(fold_constants(graph)) == names(graph)


def test_an_output_is_made_by_a_node() -> None:
    graph, weights = model("(list :y x :limit (+ (exp (full (list 2) 0.0)) 1.0))")
    folded = fold_constants(graph)
    assert names(folded) == ["constant", "constant", "+"]
    found = evaluate(folded, {"inputs": np.zeros((1, 16), np.float32)}, weights)
    np.testing.assert_array_equal(found["limit"], [2, 2])


def test_an_error_says_where_the_operation_stands() -> None:
    graph, _ = model("(+ x (take (zeros (list 3)) (full (list 1) 7 :dtype i32)))")
    with pytest.raises(SexpgpuError) as caught:
        fold_constants(graph)
    assert caught.value.code == "E-VALUE-001"
    assert "program.sx:3:" in (caught.value.place or "")
