"""Which whole numbers an input may hold: found from where they are used as indices."""

from __future__ import annotations

from collections.abc import Sequence

from sexpgpu.export.graph.graph import Graph, Node, Value
from sexpgpu.export.graph.types import Batch

#: Operations that hand the numbers of their first operand on as they are.
_PASSING = frozenset(
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
        "tile",
        "cast",
        "split",
        "sort",
        "top-k",
        "max",
        "min",
        "take",
        "take-along",
        "gather-nd",
    ]
)
#: Operations that hand on the numbers of several operands, by which: of `where` not the condition,
#: of `scatter-set` not the indices.
_JOINING = {
    "concat": slice(None),
    "stack": slice(None),
    "where": slice(1, None),
    "minimum": slice(None),
    "maximum": slice(None),
    "scatter-set": slice(0, None, 2),
}


def index_bounds(graph: Graph) -> dict[str, int]:
    """For each input of whole numbers that indexes an axis, that axis's length.

    Every use counts, the shortest axis wins; an input of which nothing is known is left out.
    Numbers that are computed with before they index are not followed.
    """
    limits = _Limits()
    limits.follow(graph)
    return {
        value.name: limits[value]
        for value in graph.inputs
        if value in limits and value.type.dtype.is_integer
    }


class _Limits(dict[Value, int]):
    """Below which length the numbers of a value have to be, from the end of a graph on."""

    def lower(self, value: Value, length: int) -> None:
        self[value] = min(length, self.get(value, length))

    def follow(self, graph: Graph) -> None:
        """Go through a graph, of whose outputs some limits may be known."""
        for node in reversed(graph.nodes):
            self._hand_on(node)
            self._index(node)

    def _hand_on(self, node: Node) -> None:
        name = node.operation.name
        if name == "scan":
            self._scan(node)
            return
        # The positions that `top-k` gives are no numbers of its operand.
        results = node.results[:1] if name == "top-k" else node.results
        known = [self[result] for result in results if result in self]
        if not known:
            return
        handed: Sequence[Value] = ()
        if name in _PASSING:
            handed = node.inputs[:1]
        elif name in _JOINING:
            handed = node.inputs[_JOINING[name]]
        for value in handed:
            self.lower(value, min(known))

    def _scan(self, node: Node) -> None:
        """What the results are is what a step gives; what a step reads is what the operands are."""
        body: Graph = node.attributes["body"]
        outputs = list(body.outputs.values())
        for result, output in zip(node.results, outputs, strict=True):
            if result in self:
                self.lower(output, self[result])
        carries = node.attributes["carries"]
        # A carry is what the step before left, which may be another carry of it.
        known = None
        while known != (known := [self.get(output) for output in outputs]):
            self.follow(body)
            for value, output in zip(body.inputs[:carries], outputs[:carries], strict=True):
                if value in self:
                    self.lower(output, self[value])
        for operand, value in zip(node.inputs, body.inputs, strict=True):
            if value in self:
                self.lower(operand, self[value])

    def _index(self, node: Node) -> None:
        name, attributes = node.operation.name, node.attributes
        if name in ("take", "take-along"):
            length = node.inputs[0].type.shape[attributes["axis"]]
            if not isinstance(length, Batch):
                self.lower(node.inputs[1], length)
        elif name == "gather-nd" or name.startswith("scatter-"):
            shape = node.inputs[0].type.shape
            first = attributes["batch-dims"]
            depth = node.inputs[1].type.shape[-1]
            if isinstance(depth, int):
                lengths = [d for d in shape[first : first + depth] if isinstance(d, int)]
                if lengths:
                    self.lower(node.inputs[1], min(lengths))
