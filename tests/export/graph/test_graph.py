"""The graph's classes: what a pass stands on."""

from __future__ import annotations

from typing import Any

import pytest

from sexpgpu.export.graph.graph import Graph, Node, Position, Rewriter, Value, make_node, reachable
from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError

X_TYPE = TensorType(DType.F32, (Batch(), 4))
WHERE = Position("model.sx", 3, 7)


def apply(name: str, *inputs: Value, **attributes: Any) -> Node:
    return make_node(
        all_operations()[name], inputs, attributes, position=WHERE, scope="blocks.0.mlp"
    )


@pytest.fixture
def graph() -> Graph:
    """y = exp(neg(x) * w), and tanh(x), which nothing reads."""
    x, w = Value(X_TYPE, name="x"), Value(TensorType(DType.F32, (4,)), name="w")
    neg = apply("neg", x)
    product = apply("*", neg.results[0], w)
    dead = apply("tanh", x)
    exp = apply("exp", product.results[0])
    return Graph([x], {"w": w}, [neg, product, dead, exp], {"y": exp.results[0]})


def test_a_node_infers_its_types_and_knows_where_it_is_from(graph: Graph) -> None:
    product = graph.nodes[1]
    assert product.result_types == (X_TYPE,)
    assert product.input_types == (X_TYPE, TensorType(DType.F32, (4,)))
    assert (str(product.position), product.scope) == ("model.sx:3:7", "blocks.0.mlp")
    value = product.results[0]
    assert (value.node, value.index) == (product, 0)
    assert repr(value) == "<*:0 [batch, 4] f32>"
    assert repr(graph.inputs[0]) == "<x [batch, 4] f32>"
    assert repr(product) == "<node * model.sx:3:7>"


def test_a_node_that_breaks_its_operations_rules(graph: Graph) -> None:
    with pytest.raises(SexpgpuError) as caught:
        apply("+", graph.inputs[0], Value(TensorType(DType.F32, (3,))))
    assert caught.value.code == "E-SHAPE-001"


def test_several_results(graph: Graph) -> None:
    node = apply("split", graph.inputs[0], parts=(1, 3), axis=1)
    assert [v.index for v in node.results] == [0, 1]
    assert [v.type.shape for v in node.results] == [(Batch(), 1), (Batch(), 3)]


def test_consumers_are_listed_once_each(graph: Graph) -> None:
    square = apply("*", graph.inputs[0], graph.inputs[0])
    graph.nodes.append(square)
    consumers = graph.consumers()
    assert consumers[graph.inputs[0]] == [graph.nodes[0], graph.nodes[2], square]
    assert consumers[graph.weights["w"]] == [graph.nodes[1]]
    assert graph.outputs["y"] not in consumers


def test_reachable_leaves_out_what_nothing_depends_on(graph: Graph) -> None:
    neg, product, _, exp = graph.nodes
    assert reachable(graph.outputs.values()) == [neg, product, exp]
    assert reachable([exp.results[0], neg.results[0]]) == [neg, product, exp]
    assert reachable(graph.inputs) == []


def test_reachable_of_a_deep_graph() -> None:
    value = Value(X_TYPE, name="x")
    for _ in range(5000):
        value = apply("neg", value).results[0]
    assert len(reachable([value])) == 5000


# Rewriting


def test_what_stays_the_same_is_taken_over(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    kept = [rewriter.keep(node) for node in graph.nodes]
    assert kept == graph.nodes
    finished = rewriter.finish(graph)
    assert finished.outputs == graph.outputs
    assert finished.nodes is not graph.nodes


def test_what_reads_a_replaced_value_is_made_again(graph: Graph) -> None:
    neg, product, dead, exp = graph.nodes
    rewriter = Rewriter(graph)
    new = rewriter.add(all_operations()["abs"], [rewriter[graph.inputs[0]]], like=neg)
    rewriter.replace(neg.results[0], new)
    again = rewriter.keep(product)
    assert rewriter.keep(dead) is dead
    last = rewriter.keep(exp)
    assert again is not product
    assert again.inputs == (new, graph.weights["w"])
    assert (again.position, again.scope) == (product.position, product.scope)
    assert new.node is not None
    assert (new.node.position, new.node.scope) == (neg.position, neg.scope)
    finished = rewriter.finish(graph)
    assert [node.operation.name for node in finished.nodes] == ["abs", "*", "tanh", "exp"]
    assert finished.outputs == {"y": last.results[0]}
    assert graph.outputs["y"] is exp.results[0], "the old graph is as it was"


def test_other_attributes(graph: Graph) -> None:
    total = apply("sum", graph.inputs[0], axis=(1,), keep=False)
    graph.nodes, graph.outputs = [total], {"y": total.results[0]}
    rewriter = Rewriter(graph)
    kept = rewriter.keep(total, {**total.attributes, "keep": True})
    assert kept.results[0].type.shape == (Batch(), 1)
    assert rewriter[total.results[0]] is kept.results[0]
    assert total.results[0] in rewriter


def test_outputs_of_another_kind(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewriter.keep(node)
    named = [("a", graph.nodes[0].results[0]), ("x", graph.inputs[0])]
    assert rewriter.finish(graph, named).outputs == dict(named)
