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


class Evaluation:
    """A graph's evaluation, node by node, so that it can be stopped; values are let go when done.

    Inputs and weights have the dtypes of the graph; the batch is read off the inputs' shapes where
    it is not given.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Array],
        weights: Mapping[str, Array] | WeightReader,
        batch: int | None = None,
    ) -> None:
        self.graph = graph
        self.count = 0
        self._read = weights if callable(weights) else weights.__getitem__
        self.batch = batch_of(graph, inputs) if batch is None else batch
        self._known: dict[Value, Array] = {value: inputs[value.name] for value in graph.inputs}
        self._last_use = _last_uses(graph)
        self._names = {value: path for path, value in graph.weights.items()}

    def step(self) -> bool:
        """Evaluates the next node; false when there is none."""
        if self.count == len(self.graph.nodes):
            return False
        node = self.graph.nodes[self.count]
        self._known.update(zip(node.results, self.results(node), strict=True))
        for value in self._last_use.get(self.count, ()):
            self._known.pop(value, None)
        self.count += 1
        return True

    def results(self, node: Node) -> list[Array]:
        """What the node gives for the values of its inputs."""
        return evaluate_node(node, [self[value] for value in node.inputs], self.batch)

    def __getitem__(self, value: Value) -> Array:
        """An input, a weight, or a value that was computed and is still needed."""
        return self._read(self._names[value]) if value in self._names else self._known[value]

    def __contains__(self, value: object) -> bool:
        return value in self._names or value in self._known

    def outputs(self) -> dict[str, Array]:
        """The outputs by name, once every node was evaluated."""
        return {name: self[value] for name, value in self.graph.outputs.items()}


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array] | WeightReader,
    batch: int | None = None,
) -> dict[str, Array]:
    """The outputs by name."""
    evaluation = Evaluation(graph, inputs, weights, batch)
    while evaluation.step():
        pass
    return evaluation.outputs()


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
    """The attributes with the batch's size in place of its symbol.

    Beside a body graph, whose nodes have attributes of their own, it is the attribute `batch`.
    """

    def number(value: Any) -> Any:
        if isinstance(value, Batch):
            return value.multiple * batch
        return tuple(number(v) for v in value) if isinstance(value, tuple) else value

    resolved = {name: number(value) for name, value in attributes.items()}
    if any(isinstance(value, Graph) for value in resolved.values()):
        resolved["batch"] = batch
    return resolved


def batch_of(graph: Graph, inputs: Mapping[str, Array]) -> int:
    """How many records the inputs hold; 1 where none has a batch axis."""
    for value in graph.inputs:
        for axis, dimension in enumerate(value.type.shape):
            if isinstance(dimension, Batch):
                return int(inputs[value.name].shape[axis]) // dimension.multiple
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
