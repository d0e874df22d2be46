"""Precision: products in bf16, and nothing else."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.export.passes.precision import set_precision
from support.architectures import ARCHITECTURES
from support.arrays import assert_same
from support.programs import GPT, traced

PRODUCTS = {"matmul", "einsum", "conv", "conv-transpose", "attention", "lstm", "gru"}


def test_every_operation_that_multiplies_and_sums_has_a_precision() -> None:
    having = {
        name
        for name, operation in all_operations().items()
        if any(a.name == "precision" for a in operation.signature.attributes)
    }
    assert having == PRODUCTS


def test_f32_leaves_the_graph_alone() -> None:
    graph, _ = traced(GPT)
    assert set_precision(graph, "f32") is graph


def test_products_alone_change() -> None:
    graph, _ = traced(GPT)
    changed = set_precision(graph, "bf16")
    assert len(changed.nodes) == len(graph.nodes)
    for before, after in zip(graph.nodes, changed.nodes, strict=True):
        assert after.operation is before.operation
        assert after.result_types == before.result_types
        assert (after.scope, after.position) == (before.scope, before.position)
        if before.operation.name in PRODUCTS:
            assert after.attributes == {**before.attributes, "precision": "bf16"}
        else:
            assert after.attributes == before.attributes


def test_operands_are_rounded_and_sums_are_f32() -> None:
    graph, weights = traced("""
(def record (fields :x (list f32 64)))
(defmodel net () (parts w (param (list 64 3) :init (normal 1.0))) (apply (x) (matmul x w)))
(def model (net))""")
    x = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    found = evaluate(set_precision(graph, "bf16"), {"inputs": x}, weights)["output"]
    rounded = [a.astype(ml_dtypes.bfloat16).astype(np.float32) for a in (x, weights["w"])]
    assert_same(found, rounded[0] @ rounded[1])


def test_the_body_of_a_scan_changes_too() -> None:
    graph, _ = traced(ARCHITECTURES["scan"])
    changed = set_precision(graph, "bf16")
    (scan,) = [node for node in changed.nodes if node.operation.name == "scan"]
    body: Graph = scan.attributes["body"]
    assert [n.attributes["precision"] for n in body.nodes if n.operation.name == "matmul"] == [
        "bf16"
    ]
    assert scan.position is not None


def test_products_of_other_dtypes_stay() -> None:
    graph, _ = traced("""
(def record (fields :x (list f64 4) :n (list i32 4)))
(defmodel net () (parts)
  (apply (x n) (list (matmul (transpose x) x) (matmul (transpose n) n))))
(def model (net))""")
    for node in set_precision(graph, "bf16").nodes:
        assert node.attributes.get("precision", "f32") == "f32"
