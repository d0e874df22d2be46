"""What is pruned from an ONNX graph, and what bodies keep."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from sexpgpu.export.onnx.prune import prune


def test_only_what_outputs_need_stays() -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["unread"]),
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("Split", ["y"], ["left", "right"]),
        helper.make_node("Exp", ["unread"], ["lost"]),
    ]
    tensors = [numpy_helper.from_array(np.zeros(2), name) for name in ("w", "z")]
    kept, initializers = prune(nodes, tensors, ["right", "z"])
    assert [node.op_type for node in kept] == ["Neg", "Split"]
    assert [tensor.name for tensor in initializers] == ["z"]


def test_a_body_reads_from_outside() -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["step", "outer"], ["next"])],
        "body",
        [helper.make_tensor_value_info("step", TensorProto.FLOAT, [])],
        [
            helper.make_tensor_value_info("next", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("passed", TensorProto.FLOAT, []),
        ],
    )
    nodes = [
        helper.make_node("Neg", ["w"], ["outer"]),
        helper.make_node("Exp", ["w"], ["passed"]),
        helper.make_node("Log", ["w"], ["unread"]),
        helper.make_node("Scan", ["x"], ["y"], body=inner, num_scan_inputs=1),
    ]
    kept, initializers = prune(nodes, [numpy_helper.from_array(np.zeros(1), "w")], ["y"])
    assert [node.op_type for node in kept] == ["Neg", "Exp", "Scan"]
    assert len(initializers) == 1
