"""Which whole numbers an input may hold: found from where they are used as indices."""

from __future__ import annotations

from sexpgpu.export.graph.graph import Graph, Value
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
    ]
)
#: Operations that hand on the numbers of every operand, but for the condition of `where`.
_JOINING = {"concat": 0, "stack": 0, "where": 1}


def index_bounds(graph: Graph) -> dict[str, int]:
    """For each input of whole numbers that indexes an axis, that axis's length.

    Every use counts, the shortest axis wins; an input of which nothing is known is left out.
    Numbers that are computed with before they index are not followed.
    """
    limits: dict[Value, int] = {}

    def limit(value: Value, length: int) -> None:
        limits[value] = min(length, limits.get(value, length))

    for node in reversed(graph.nodes):
        name, attributes = node.operation.name, node.attributes
        if name in _PASSING or name in _JOINING:
            known = [limits[result] for result in node.results if result in limits]
            if known:
                handed = node.inputs[_JOINING[name] :] if name in _JOINING else node.inputs[:1]
                for value in handed:
                    limit(value, min(known))
        elif name in ("take", "take-along"):
            length = node.inputs[0].type.shape[attributes["axis"]]
            if not isinstance(length, Batch):
                limit(node.inputs[1], length)
        elif name == "gather-nd" or name.startswith("scatter-"):
            shape = node.inputs[0].type.shape
            first = attributes["batch-dims"]
            depth = node.inputs[1].type.shape[-1]
            if isinstance(depth, int):
                lengths = [d for d in shape[first : first + depth] if isinstance(d, int)]
                if lengths:
                    limit(node.inputs[1], min(lengths))
    return {
        value.name: limits[value]
        for value in graph.inputs
        if value in limits and value.type.dtype.is_integer
    }
