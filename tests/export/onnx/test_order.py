"""Where the nodes that a weight goes through stand."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import onnx
from onnx import helper

from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.onnx.order import stand_late
from support.programs import GPT, traced


def node(operator: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def outputs(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    return [name for node in nodes for name in node.output]


def test_each_stands_before_the_first_that_reads_it() -> None:
    early = [node("Cast", w, f"wide.{w}") for w in "abc"]
    nodes = [
        node("Neg", "x", "y"),
        node("MatMul", "y wide.b", "z"),
        node("Mul", "wide.b wide.a", "s"),
    ]
    assert outputs(stand_late(early, nodes)) == ["y", "wide.b", "z", "wide.a", "s"]


def test_what_a_body_reads_counts() -> None:
    body = helper.make_graph([node("Add", "step wide", "next")], "body", [], [])
    nodes = [node("Neg", "x", "y"), node("Scan", "y", "z", body=body)]
    assert outputs(stand_late([node("Cast", "w", "wide")], nodes)) == ["y", "wide", "z"]


def test_weights_that_are_stored_as_bf16_are_widened_where_they_are_used() -> None:
    graph, weights = traced(GPT)
    model = build_model(
        graph, lambda path: weights[path].astype(ml_dtypes.bfloat16), BuildOptions()
    )
    onnx.checker.check_model(model, full_check=True)
    made = [(n.op_type, n.input[0]) for n in model.graph.node]
    casts = [i for i, (op, name) in enumerate(made) if op == "Cast" and name in weights]
    assert len(casts) == len(weights)
    assert made.index(("Cast", "norm.scale")) > made.index(("Cast", "blocks.1.mlp.down.w"))
    assert casts != list(range(len(casts))), "not all before everything else"
