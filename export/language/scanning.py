"""`scan`: one body, traced once, that runs along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sexpgpu.export.graph.graph import Graph, Node, Rewriter, Value, next_serial, reachable
from sexpgpu.export.graph.types import DType, TensorType
from sexpgpu.export.language.tensors import Tensor, default_dtype, is_number
from sexpgpu.export.language.tracing import Tracer
from sexpgpu.export.language.values import Builtin, Call, portray
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.export.operations.rules import normalize_axis

#: The lists of carries, slices and results hold so many values at most.  Lists may share their
#: parts, so that a short program writes down more than could ever be walked through.
VALUE_LIMIT = 1_000


def scan_builtin(tracer: Tracer) -> Builtin:
    """`(scan f init xs)`: `f` takes the carry and one step's slice, and returns a list of two, the
    next carry and what is stacked. Each may be a tensor or a list of tensors, or nil.
    """

    def scan(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        return _scan(tracer, call, positional, keywords)

    return Builtin("scan", "(f init xs &key (axis 0) (reverse false))", scan)


def _scan(
    tracer: Tracer, call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> object:
    function, init, xs = positional
    axis, reverse = keywords.get("axis", 0), keywords.get("reverse", False)
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise call.wrong_kind(axis, "axis", "a whole number")
    if not isinstance(reverse, bool):
        raise call.wrong_kind(reverse, "reverse", "true or false")
    carries = [_as_value(tracer, call, item, 1) for item in _flat(call, init, 1)]
    sequences = [_as_value(tracer, call, item, 2) for item in _flat(call, xs, 2)]
    if not sequences:
        raise call.error(
            "E-VALUE-001",
            "`scan` runs along an axis of its third argument, which holds no tensor",
            2,
        )
    with call.blamed("axis" if "axis" in keywords else 2):
        axes = [normalize_axis("scan", axis, value.type.rank) for value in sequences]
    if len(set(axes)) > 1:
        raise call.error(
            "E-VALUE-001",
            "`scan` runs along one axis, and the tensors' ranks make several of it",
            "axis",
            came=f"axis {axis} of " + " and ".join(str(value.type) for value in sequences),
        )
    carried = [Value(value.type, name=f"carry.{i}") for i, value in enumerate(carries)]
    slices = [
        Value(_without(value.type, a), name=f"x.{i}")
        for i, (value, a) in enumerate(zip(sequences, axes, strict=True))
    ]
    started = next_serial()
    with tracer.inside_scan(call.span):
        result = call.evaluator.apply(
            function, [_rebuild(init, carried), _rebuild(xs, slices)], {}, call.span
        )
    if not isinstance(result, tuple) or len(result) != 2:
        raise call.error(
            "E-TYPE-001",
            "the function of `scan` returns the next carry and what is stacked",
            0,
            came=portray(result),
            expected="(list carry y); y may be nil",
        )
    outputs = [
        _as_value(tracer, call, item, 0, like=like.type.dtype)
        for item, like in zip(_same_length(call, result[0], carried), carried, strict=True)
    ]
    stacked = [_as_value(tracer, call, item, 0) for item in _flat(call, result[1], 0)]
    body, captured = _close(carried + slices, outputs + stacked, started)
    attributes = {
        "body": body,
        "carries": len(carries),
        "sequences": len(sequences),
        "axis": axes[0],
        "reverse": reverse,
    }
    made = tracer.make(
        all_operations()["scan"], [*carries, *sequences, *captured], attributes, call.span
    )
    final = [tensor.value for tensor in made[: len(carries)]]
    ys = [tensor.value for tensor in made[len(carries) :]]
    return (_rebuild(init, final), _rebuild(result[1], ys))


def _close(inputs: list[Value], outputs: list[Value], started: int) -> tuple[Graph, list[Value]]:
    """The graph from inputs to outputs, and what it reads from outside, which become inputs.

    Random numbers that the function draws, since the serial `started`, are drawn at every step.
    """
    inside = set(inputs)
    nodes: list[Node] = []
    for node in reachable(outputs, since=started):
        if node.operation.random or any(value in inside for value in node.inputs):
            nodes.append(node)
            inside.update(node.results)
    read = [value for node in nodes for value in node.inputs] + outputs
    captured = list(dict.fromkeys(value for value in read if value not in inside))
    names = [Value(value.type, name=f"outer.{i}") for i, value in enumerate(captured)]
    rewriter = Rewriter(Graph(inputs=inputs))
    for outer, inner in zip(captured, names, strict=True):
        rewriter.replace(outer, inner)
    for node in nodes:
        rewriter.keep(node)
    graph = Graph(inputs=[*inputs, *names], nodes=rewriter.nodes)
    graph.outputs = {f"out.{i}": rewriter[value] for i, value in enumerate(outputs)}
    return graph, captured


def _flat(call: Call, structure: object, argument: int) -> list[object]:
    """The tensors of nil, a tensor, or lists of them to any depth."""
    leaves: list[object] = []
    waiting = [structure]
    count = 0
    while waiting:
        item = waiting.pop()
        count += 1
        if count + len(waiting) > VALUE_LIMIT:
            raise call.error(
                "E-LIMIT-004",
                f"`scan` is given lists of more than {VALUE_LIMIT:,} values",
                argument,
            )
        if isinstance(item, tuple):
            waiting += reversed(item)
        elif item is not None:
            leaves.append(item)
    return leaves


def _rebuild(structure: object, values: list[Value]) -> object:
    """The structure again, with these values as its leaves."""
    waiting = iter(values)

    def build(part: object) -> object:
        if part is None:
            return None
        if isinstance(part, tuple):
            return tuple([build(item) for item in part])
        return Tensor(next(waiting))

    return build(structure)


def _same_length(call: Call, carry: object, carried: list[Value]) -> list[object]:
    leaves = _flat(call, carry, 0)
    if len(leaves) != len(carried):
        raise call.error(
            "E-TYPE-001",
            "the next carry of `scan` does not hold as many tensors as the first one",
            0,
            came=f"{len(leaves)}: {portray(carry)}",
            expected=str(len(carried)),
        )
    return leaves


def _as_value(
    tracer: Tracer, call: Call, item: object, argument: int, like: DType | None = None
) -> Value:
    if isinstance(item, Tensor):
        return item.value
    if is_number(item):
        assert isinstance(item, int | float)
        return tracer.tensor(call, item, like or default_dtype(item), argument)
    raise call.wrong_kind(item, argument, "a tensor, or a list of tensors")


def _without(type: TensorType, axis: int) -> TensorType:
    return type.with_shape((*type.shape[:axis], *type.shape[axis + 1 :]))
