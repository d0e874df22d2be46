"""The meaning of a graph: every node by its operation's NumPy function, in order.

Written for clarity.  Whatever else computes a graph is tested against this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Graph, Node, Value
from sexpgpu.export.graph.types import Array, Batch, concrete

WeightReader = Callable[[str], Array]


def evaluate(
    graph: Graph, inputs: Mapping[str, Array], weights: Mapping[str, Array] | WeightReader
) -> dict[str, Array]:
    """The outputs by name.

    Inputs and weights have the dtypes of the graph; the batch is read off the inputs' shapes.
    """
    read = weights if callable(weights) else weights.__getitem__
    batch = batch_of(graph, inputs)
    known: dict[Value, Array] = {value: inputs[value.name] for value in graph.inputs}
    last_use = _last_uses(graph)
    names = {value: path for path, value in graph.weights.items()}
    for index, node in enumerate(graph.nodes):
        arrays = [read(names[v]) if v in names else known[v] for v in node.inputs]
        known.update(zip(node.results, evaluate_node(node, arrays, batch), strict=True))
        for value in last_use.get(index, ()):
            known.pop(value, None)
    return {
        name: read(names[value]) if value in names else known[value]
        for name, value in graph.outputs.items()
    }


def evaluate_node(node: Node, arrays: list[Array], batch: int) -> list[Array]:
    """A node's results, checked against the types that inference gave them."""
    with np.errstate(all="ignore"):
        results = list(node.operation.evaluate(arrays, resolve(node.attributes, batch)))
    for array, type in zip(results, node.result_types, strict=True):
        shape = concrete(type.shape, batch)
        if array.shape != shape or array.dtype != type.dtype.numpy:
            raise AssertionError(
                f"{node.operation.name} gave {array.shape} {array.dtype}, "
                f"inference says {shape} {type.dtype}"
            )
    return results


def resolve(attributes: Attributes, batch: int) -> Attributes:
    """The attributes with the batch's size in place of its symbol."""

    def number(value: Any) -> Any:
        if isinstance(value, Batch):
            return value.multiple * batch
        return tuple(number(v) for v in value) if isinstance(value, tuple) else value

    return {name: number(value) for name, value in attributes.items()}


def batch_of(graph: Graph, inputs: Mapping[str, Array]) -> int:
    """How many records the inputs hold; 1 where none has a batch axis."""
    for value in graph.inputs:
        for axis, dimension in enumerate(value.type.shape):
            if isinstance(dimension, Batch):
                return inputs[value.name].shape[axis] // dimension.multiple
    return 1


def _last_uses(graph: Graph) -> dict[int, list[Value]]:
    """The values that nothing reads after node number i, so that they can be let go."""
    last: dict[Value, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.results):
            last[value] = index
    kept = set(graph.outputs.values())
    uses: dict[int, list[Value]] = {}
    for value, index in last.items():
        if value not in kept:
            uses.setdefault(index, []).append(value)
    return uses
