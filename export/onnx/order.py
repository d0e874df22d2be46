"""The order of ONNX nodes: what is made of a weight stands where it is first read."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from sexpgpu.export.onnx.prune import reads


def stand_late(
    early: Sequence[onnx.NodeProto], nodes: Sequence[onnx.NodeProto]
) -> list[onnx.NodeProto]:
    """The nodes in their order, each of `early` right before the first of them that reads it.

    A runtime that goes by the file's order then holds no more of such values than it must.  The
    nodes of `early` read none of each other; one that nothing reads is left out.
    """
    waiting = {name: node for node in early for name in node.output}
    placed: list[onnx.NodeProto] = []
    for node in nodes:
        for name in reads(node):
            if name in waiting:
                placed.append(waiting.pop(name))
        placed.append(node)
    return placed
