"""The graph for a fixed number of records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Batch
from sexpgpu.export.passes.fixed import fix_batch
from sexpgpu.export.passes.prune import remove_dead
from sexpgpu.schemas.errors import SexpgpuError
from support.architectures import ARCHITECTURES
from support.arrays import SEEDS, assert_same
from support.programs import traced
from support.random_graphs import OPERATIONS, random_graph


def symbolic(graph: Graph) -> list[object]:
    """What still speaks of the batch, bodies included."""
    values = [*graph.inputs, *graph.outputs.values(), *(v for n in graph.nodes for v in n.results)]
    found: list[object] = [v for v in values if any(isinstance(d, Batch) for d in v.type.shape)]
    for node in graph.nodes:
        for attribute in node.attributes.values():
            if isinstance(attribute, Graph):
                found += symbolic(attribute)
            elif isinstance(attribute, Batch) or (
                isinstance(attribute, tuple) and any(isinstance(d, Batch) for d in attribute)
            ):
                found.append(attribute)
    return found


@settings(max_examples=40)
@given(SEEDS)
def test_any_graph_means_the_same(seed: int) -> None:
    made = random_graph(seed)
    made.grow(OPERATIONS, 10)
    made.graph.outputs = {f"y{i}": value for i, value in enumerate(made.values[-4:])}
    graph = remove_dead(made.graph)
    fixed = fix_batch(graph, 3)
    assert symbolic(fixed) == []
    feeds = made.feeds(3)
    try:
        want = evaluate(graph, feeds, made.weights)
    except SexpgpuError:  # an index out of range
        return
    for name, array in evaluate(fixed, feeds, made.weights).items():
        assert_same(array, want[name])


@pytest.mark.parametrize("name", ["scan", "experts", "split qkv, permuted"])
def test_nothing_symbolic_is_left(name: str) -> None:
    graph, _ = traced(ARCHITECTURES[name])
    fixed = fix_batch(graph, 2)
    assert symbolic(graph)
    assert symbolic(fixed) == []
    assert [n.scope for n in fixed.nodes] == [n.scope for n in graph.nodes]
    assert [n.position for n in fixed.nodes] == [n.position for n in graph.nodes]


def test_an_output_that_is_an_input() -> None:
    graph, _ = traced("""
(def record (fields :x (list f32 4)))
(defmodel net () (parts) (apply (x) (list :same x :more (tanh x))))
(def model (net))""")
    fixed = fix_batch(graph, 5)
    assert fixed.outputs["same"] is fixed.inputs[0]
    assert fixed.inputs[0].type.shape == (5, 4)
