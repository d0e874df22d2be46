"""A graph in static single assignment: values, the nodes that make them, and their order.

The classes know nothing of files, of ONNX or of the language.  Values are compared by identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sexpgpu.export.graph.types import TensorType

if TYPE_CHECKING:
    from sexpgpu.export.operations.operation import Operation

Attributes = Mapping[str, Any]


class Value:
    """A tensor of the graph: an input, a weight, or one result of a node."""

    __slots__ = ("index", "name", "node", "type")

    def __init__(
        self, type: TensorType, *, name: str = "", node: Node | None = None, index: int = 0
    ) -> None:
        self.type = type
        self.name = name
        self.node = node
        self.index = index

    def __repr__(self) -> str:
        made = f"{self.node.operation.name}:{self.index}" if self.node else self.name
        return f"<{made} {self.type}>"


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a source a node was written."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


_SERIAL = itertools.count()


def next_serial() -> int:
    """A number above the serials of all nodes made so far, and below those made from now on."""
    return next(_SERIAL)


class Node:
    """One application of an operation.

    `scope` is the path of the model part whose `apply` made the node (`blocks.0.attn`), empty at
    the root.  `serial` grows with every node made: an order in which nodes can run.
    """

    __slots__ = ("attributes", "inputs", "operation", "position", "results", "scope", "serial")

    def __init__(
        self,
        operation: Operation,
        inputs: Sequence[Value],
        attributes: Attributes,
        result_types: Sequence[TensorType],
        *,
        position: Position | None = None,
        scope: str = "",
    ) -> None:
        self.operation = operation
        self.inputs = tuple(inputs)
        self.attributes = dict(attributes)
        self.position = position
        self.scope = scope
        self.serial = next(_SERIAL)
        self.results = tuple(
            Value(type, node=self, index=index) for index, type in enumerate(result_types)
        )

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self.inputs)

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self.results)

    def __repr__(self) -> str:
        return f"<node {self.operation.name} {self.position}>"


@dataclass(slots=True, eq=False, weakref_slot=True)
class Graph:
    """Inputs, weights by path, nodes in an order in which they can run, and named outputs.

    A graph is closed: every value that a node reads is an input, a weight or an earlier node's.
    """

    inputs: list[Value] = field(default_factory=list)
    weights: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: dict[str, Value] = field(default_factory=dict)

    def consumers(self) -> dict[Value, list[Node]]:
        """The nodes that read each value."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                found.setdefault(value, []).append(node)
        return found


def make_node(
    operation: Operation,
    inputs: Sequence[Value],
    attributes: Attributes,
    *,
    position: Position | None = None,
    scope: str = "",
) -> Node:
    """A node of inferred type.

    Raises SexpgpuError where the inputs or attributes break the operation's rules.
    """
    types = operation.infer_checked([value.type for value in inputs], attributes)
    return Node(operation, inputs, attributes, types, position=position, scope=scope)


def reachable(outputs: Iterable[Value], since: int = -1) -> list[Node]:
    """The nodes that the values depend on, in an order in which they can run.

    Nodes made before the serial `since`, and what only they depend on, are left out.
    """
    found: set[Node] = set()
    waiting = [value.node for value in outputs if value.node is not None]
    while waiting:
        node = waiting.pop()
        if node not in found and node.serial > since:
            found.add(node)
            waiting += [value.node for value in node.inputs if value.node is not None]
    return sorted(found, key=lambda node: node.serial)


class Rewriter:
    """Builds a new graph from an old one: what every pass that changes something stands on.

    Old values map to new ones; a node whose inputs and attributes stay the same is taken over as
    it is, with its results.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self._mapped: dict[Value, Value] = {}
        for value in (*graph.inputs, *graph.weights.values()):
            self._mapped[value] = value

    def __getitem__(self, value: Value) -> Value:
        return self._mapped[value]

    def __contains__(self, value: object) -> bool:
        return value in self._mapped

    def replace(self, old: Value, new: Value) -> None:
        """From here on `old` is read as `new`."""
        self._mapped[old] = new

    def add(
        self, operation: Operation, inputs: Sequence[Value], *, like: Node, **attributes: Any
    ) -> Value:
        """A new node with one result, at the position of `like`; the inputs are new values."""
        node = make_node(operation, inputs, attributes, position=like.position, scope=like.scope)
        self.nodes.append(node)
        return node.results[0]

    def keep(self, node: Node, attributes: Attributes | None = None) -> Node:
        """The node again, over the new values of its inputs."""
        inputs = [self._mapped[value] for value in node.inputs]
        if attributes is None and all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            kept = node
        else:
            kept = make_node(
                node.operation,
                inputs,
                node.attributes if attributes is None else attributes,
                position=node.position,
                scope=node.scope,
            )
        self.nodes.append(kept)
        for old, new in zip(node.results, kept.results, strict=True):
            self._mapped[old] = new
        return kept

    def finish(self, graph: Graph, outputs: Iterable[tuple[str, Value]] | None = None) -> Graph:
        """The new graph: the old inputs and weights, the new nodes, the mapped outputs."""
        named = graph.outputs.items() if outputs is None else outputs
        return Graph(
            inputs=list(graph.inputs),
            weights=dict(graph.weights),
            nodes=self.nodes,
            outputs={name: self._mapped.get(value, value) for name, value in named},
        )
