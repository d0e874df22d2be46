"""Leaves out ONNX nodes and initializers that no output depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx


def prune(
    nodes: Sequence[onnx.NodeProto],
    initializers: Sequence[onnx.TensorProto],
    outputs: Iterable[str],
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """The nodes and initializers that the named outputs need, in their order.

    The nodes stand in an order in which they can run, as ONNX demands.  What the bodies of nodes
    read from outside counts as read.
    """
    needed = set(outputs)
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(reads(node))
            kept.append(node)
    return kept[::-1], [tensor for tensor in initializers if tensor.name in needed]


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, and all that its bodies name, which holds what they read from outside."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from (output.name for output in attribute.g.output)
            for inner in attribute.g.node:
                yield from reads(inner)
