"""The graph for one fixed number of records: no symbolic dimension is left in it."""

from __future__ import annotations

from typing import Any

from sexpgpu.export.graph.graph import Attributes, Graph, Rewriter, Value
from sexpgpu.export.graph.types import Batch, TensorType, concrete


def fix_batch(graph: Graph, batch: int) -> Graph:
    """Needs: any graph.  Leaves: the same computation, every `batch` the number given."""
    inputs = [Value(_fixed(value.type, batch), name=value.name) for value in graph.inputs]
    rewriter = Rewriter(graph)
    for old, new in zip(graph.inputs, inputs, strict=True):
        rewriter.replace(old, new)
    for node in graph.nodes:
        rewriter.keep(node, _attributes(node.attributes, batch))
    fixed = rewriter.finish(graph)
    fixed.inputs = inputs
    return fixed


def _fixed(type: TensorType, batch: int) -> TensorType:
    return type.with_shape(concrete(type.shape, batch))


def _attributes(attributes: Attributes, batch: int) -> Attributes:
    def number(value: Any) -> Any:
        if isinstance(value, Graph):
            return fix_batch(value, batch)
        if isinstance(value, Batch):
            return value.multiple * batch
        return tuple(number(v) for v in value) if isinstance(value, tuple) else value

    return {name: number(value) for name, value in attributes.items()}
