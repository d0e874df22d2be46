"""Which whole numbers an input may hold: found from where they are used as indices.

Limits are of each element by itself: columns of one input may be indices of different tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from math import prod

import numpy as np

from sexpgpu.export.graph.graph import Graph, Node, Value
from sexpgpu.export.graph.reference import evaluate_node, resolve
from sexpgpu.export.graph.types import Array, Batch, concrete
from sexpgpu.schemas.errors import SexpgpuError

#: The limit of an element of which nothing is known.
UNLIMITED = int(np.iinfo(np.int64).max)

#: Operations that put elements of theirs elsewhere, and no others than a fill in between.
_MOVING = frozenset(
    [
        "reshape",
        "transpose",
        "permute",
        "broadcast-to",
        "squeeze",
        "unsqueeze",
        "slice",
        "flip",
        "roll",
        "shift",
        "pad",
        "tile",
        "split",
        "concat",
        "stack",
    ]
)
#: Operations that take their first operand's elements from where other numbers say.
_GATHERING = frozenset(["take", "take-along", "gather-nd"])
#: Operations that choose among elements by what these or others are, of which operands.
_CHOOSING = {
    "where": slice(1, None),
    "minimum": slice(None),
    "maximum": slice(None),
    "min": slice(None),
    "max": slice(None),
    "sort": slice(None),
    "top-k": slice(None),
    "scatter-set": slice(0, None, 2),
}
#: A value of more elements is not followed one by one.
_MOST_ELEMENTS = 1 << 22


def index_limits(graph: Graph, *, certain: bool) -> dict[str, Array]:
    """For each input of whole numbers that indexes an axis, below which number each element is.

    They are i64, of the input's shape for one record; every use counts, and the shortest axis wins.
    An input of which nothing is known is left out; numbers that are computed with before they index
    are not followed.  `certain` limits are those that no call may exceed.  Without it what is
    chosen among elements, as `where` does, limits all of them: good to draw from.
    """
    limits = _Limits(certain)
    limits.follow(graph)
    return {
        value.name: limits.of[value]
        for value in graph.inputs
        if value in limits.of and value.type.dtype.is_integer
    }


class _Limits:
    """The limits of values' elements, found from the end of a graph on."""

    def __init__(self, certain: bool) -> None:
        self.of: dict[Value, Array] = {}
        self.certain = certain

    def lower(self, value: Value, limit: Array | int) -> None:
        """Elements of the value, or all of them, are below a limit."""
        shape = concrete(value.type.shape, 1)
        if prod(shape) > _MOST_ELEMENTS or np.min(limit, initial=UNLIMITED) == UNLIMITED:
            return
        before = self.of.get(value, UNLIMITED)
        self.of[value] = np.broadcast_to(np.minimum(before, limit), shape).astype(np.int64)

    def follow(self, graph: Graph) -> None:
        """Go through a graph, of whose outputs some limits may be known."""
        for node in reversed(graph.nodes):
            if node.operation.name == "scan":
                self._scan(node)
            elif any(result in self.of for result in node.results):
                self._hand_on(node)
            self._index(node)

    def _hand_on(self, node: Node) -> None:
        name = node.operation.name
        if name == "cast":
            self.lower(node.inputs[0], self.of[node.results[0]])
        elif name in _MOVING or (name in _GATHERING and _fixed(node.inputs[1]) is not None):
            # What indexes past an end says so where it is run.
            with suppress(SexpgpuError):
                for operand in range(len(node.inputs) if name in _MOVING else 1):
                    self._move_back(node, operand)
        elif not self.certain and (name in _CHOOSING or name in _GATHERING):
            # The positions that `top-k` gives are no elements.
            results = node.results[:1] if name == "top-k" else node.results
            least = min((int(self.of[r].min()) for r in results if r in self.of), default=UNLIMITED)
            for value in node.inputs[_CHOOSING.get(name, slice(1))]:
                self.lower(value, least)

    def _move_back(self, node: Node, operand: int) -> None:
        """Limits of an operand's elements, each that of the places where it goes."""
        source = node.inputs[operand]
        size = prod(concrete(source.type.shape, 1))
        if size > _MOST_ELEMENTS:
            return
        limits = np.full(size + 1, UNLIMITED)
        for result, places in zip(node.results, _sources(node, operand), strict=True):
            if result in self.of:
                np.minimum.at(limits, places, self.of[result])
        self.lower(source, limits[1:].reshape(concrete(source.type.shape, 1)))

    def _scan(self, node: Node) -> None:
        """What the results are is what a step gives; what a step reads is what the operands are."""
        body: Graph = node.attributes["body"]
        axis, carries = node.attributes["axis"], node.attributes["carries"]
        outputs = list(body.outputs.values())
        for index, (result, output) in enumerate(zip(node.results, outputs, strict=True)):
            if result not in self.of:
                continue
            limit = self.of[result]
            if index >= carries:
                # Another step's may be larger.
                limit = limit.max(axis) if self.certain else limit.min(axis)
            elif self.certain:
                continue
            self.lower(output, limit)
        known = None
        while known != (known := [self.of[o].tobytes() for o in outputs if o in self.of]):
            self.follow(body)
            if self.certain:
                # What the last step leaves, none reads.
                break
            for value, output in zip(body.inputs[:carries], outputs[:carries], strict=True):
                if value in self.of:
                    self.lower(output, self.of[value])
        for index, (operand, value) in enumerate(zip(node.inputs, body.inputs, strict=True)):
            if value in self.of:
                cut = carries <= index < carries + node.attributes["sequences"]
                limit = self.of[value]
                self.lower(operand, np.expand_dims(limit, axis) if cut else limit)

    def _index(self, node: Node) -> None:
        name, attributes = node.operation.name, node.attributes
        if name in ("take", "take-along"):
            length = node.inputs[0].type.shape[attributes["axis"]]
            if not isinstance(length, Batch):
                self.lower(node.inputs[1], length)
        elif name == "gather-nd" or name.startswith("scatter-"):
            first = attributes["batch-dims"]
            depth = node.inputs[1].type.shape[-1]
            if isinstance(depth, int):
                axes = node.inputs[0].type.shape[first : first + depth]
                self.lower(
                    node.inputs[1],
                    np.array([UNLIMITED if isinstance(d, Batch) else d for d in axes], np.int64),
                )


def _fixed(value: Value) -> Array | None:
    """What a value is, where the graph says it."""
    node = value.node
    if node is None or node.inputs or node.operation.name not in ("constant", "full", "iota"):
        return None
    return evaluate_node(node, [], 1)[value.index]


def _sources(node: Node, operand: int) -> Iterator[Array]:
    """For each element of each result, from which element of the operand it is, counted from 1.

    It is 0 where it is from none: the node is evaluated for numbers that tell where they were.
    """
    shapes = [concrete(value.type.shape, 1) for value in node.inputs]
    arrays = [
        np.zeros(shape, np.int64) if (known := _fixed(value)) is None else known
        for value, shape in zip(node.inputs, shapes, strict=True)
    ]
    if node.operation.name in _MOVING:
        arrays = [np.zeros(shape, np.int64) for shape in shapes]
    arrays[operand] = np.arange(1, prod(shapes[operand]) + 1).reshape(shapes[operand])
    attributes = resolve(node.attributes, 1)
    if "value" in attributes:
        attributes = {**attributes, "value": 0.0}
    yield from node.operation.evaluate(arrays, attributes)
