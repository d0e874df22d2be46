"""The gather for `--at`: one position a record instead of the whole window.

The outputs' rows are gathered, and the gather is moved up the graph through whatever treats
positions apart (by the operations' axis rules), so that the row alone is computed.  What cannot
move stays a gather.  Two copies of the row are computed and one is kept: a product with a single
row takes other kernels in runtimes, with other rounding than the window's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.axes import batch_axes
from sexpgpu.export.graph.graph import Attributes, Graph, Node, Rewriter, Value, make_node
from sexpgpu.export.graph.types import Batch, Dimension, DType, TensorType, format_shape
from sexpgpu.export.operations.operation import Apart, Causal, Rows, all_operations
from sexpgpu.export.passes.prune import remove_dead
from sexpgpu.schemas.errors import SexpgpuError

INPUT = "at"
_COPIES = 2


def gather_at(graph: Graph) -> Graph:
    """The graph with a last input `at`, i32 [batch], whose outputs have one position each.

    Needs: outputs [batch, positions, …] of one length, else raises E-EXPORT-003.  Leaves: outputs
    [batch, 1, …], with the bits of the whole window's row.
    """
    _check(graph)
    plan = _plan(graph)
    return remove_dead(_Builder(graph, plan).build())


def _check(graph: Graph) -> None:
    if any(value.name == INPUT for value in graph.inputs):
        raise SexpgpuError(
            "E-EXPORT-003", "the model has an input called `at` of its own", help="rename it"
        )
    lengths: dict[Dimension, str] = {}
    for name, value in graph.outputs.items():
        shape = value.type.shape
        if len(shape) < 2 or shape[0] != Batch() or not isinstance(shape[1], int):
            raise SexpgpuError(
                "E-EXPORT-003",
                f"the output `{name}` has no axis of positions for --at",
                came=format_shape(shape),
                expected="[batch, positions, …]",
                help="leave it out: name the outputs that have one with --output",
            )
        lengths.setdefault(shape[1], name)
    if len(lengths) > 1:
        raise SexpgpuError(
            "E-EXPORT-003",
            "the outputs' second axes differ in length",
            came=", ".join(f"`{name}` has {length}" for length, name in lengths.items()),
            help="name outputs of one length with --output",
        )


@dataclass(frozen=True, slots=True)
class _Restriction:
    """A node that is computed for rows only: the axis of its results, and of each operand."""

    axis: int
    input_axes: tuple[int | None, ...]
    causal: bool


#: What is wanted of a value: the axis along which its rows are, or all of it.
_FULL = -1


def _plan(graph: Graph) -> dict[Node, _Restriction]:
    """Which nodes can be computed for rows only, found from the outputs backwards."""
    demand: dict[Value, int] = dict.fromkeys(graph.outputs.values(), 1)
    plan: dict[Node, _Restriction] = {}

    def want(value: Value, axis: int) -> None:
        demand[value] = axis if demand.get(value, axis) == axis else _FULL

    for node in reversed(graph.nodes):
        wanted = {demand[value] for value in node.results if value in demand}
        restriction = None
        if len(wanted) == 1 and (axis := wanted.pop()) != _FULL:
            restriction = _restriction(node, axis, [v for v in node.results if v in demand])
        if restriction is None:
            for value in node.inputs:
                want(value, _FULL)
            continue
        plan[node] = restriction
        for value, input_axis in zip(node.inputs, restriction.input_axes, strict=True):
            carried = input_axis is not None and _batch_axis(value.type) is not None
            want(value, input_axis if carried and input_axis is not None else _FULL)
    return plan


def _restriction(node: Node, axis: int, results: list[Value]) -> _Restriction | None:
    """How the node would be restricted to rows; None where it cannot be, or would gain nothing."""
    types = [value.type for value in results]
    if any(_batch_axis(type) is None for type in types) or types[0].shape[axis] in range(
        _COPIES + 1
    ):
        return None
    found = _input_axes(node, axis, results)
    if found is None:
        return None
    restriction = _Restriction(axis, *found)
    trial = [
        value if reduced is None else Value(_reduced(value.type, reduced, types[0]))
        for value, reduced in zip(node.inputs, restriction.input_axes, strict=True)
    ]
    positions = Value(TensorType(DType.I32, (Batch(), _COPIES)), name=INPUT)
    changed = _apply(node, restriction, trial, positions)
    return restriction if changed and _is_sound(node, restriction, results, *changed) else None


def _input_axes(
    node: Node, axis: int, results: list[Value]
) -> tuple[tuple[int | None, ...], bool] | None:
    """For each operand its axis that is the results' `axis`, position for position, or None; and
    whether another is read in causal order.  None where no operand has such an axis."""
    axes: list[int | None] = []
    causal = False
    for operand, type in enumerate(node.input_types):
        own: list[int] = []
        for candidate in range(type.rank):
            fates = node.operation.axis_rule(
                operand, candidate, node.input_types, node.attributes, node.result_types
            )
            relevant = [fates[value.index] for value in results]
            if all(fate == Apart(axis) for fate in relevant):
                own.append(candidate)
            causal = causal or Causal(axis) in relevant
        if len(own) > 1 or (own and not _can_have_rows(type, own[0], results[0].type)):
            return None
        axes.append(own[0] if own else None)
    return None if all(found is None for found in axes) else (tuple(axes), causal)


def _can_have_rows(type: TensorType, axis: int, result: TensorType) -> bool:
    """Whether each record can have rows of its own: the batch is there once, or there is room."""
    if batch_axes(type):
        return _batch_axis(type) is not None
    return type.rank < result.rank or (axis > 0 and type.shape[0] == 1)


def _is_sound(
    node: Node,
    restriction: _Restriction,
    results: list[Value],
    inputs: tuple[Value, ...],
    attributes: Attributes,
) -> bool:
    """Whether the restricted node makes the rows of the results, each record's by its own."""
    types = [value.type for value in inputs]
    try:
        made = node.operation.infer_checked(types, attributes)
    except SexpgpuError:
        return False
    for value in results:
        shape = list(value.type.shape)
        shape[restriction.axis] = _COPIES
        if made[value.index] != value.type.with_shape(shape):
            return False
    for operand, axis in enumerate(restriction.input_axes):
        if axis is None:
            continue
        # Records have rows of other positions, so that none may read another's.
        batch = _batch_axis(types[operand])
        assert batch is not None
        fates = node.operation.axis_rule(operand, batch, types, attributes, made)
        if any(fates[v.index] != Apart(v.type.shape.index(Batch())) for v in results):
            return False
    return True


def _apply(
    node: Node, restriction: _Restriction, inputs: list[Value], positions: Value
) -> tuple[tuple[Value, ...], Attributes] | None:
    rows = Rows(
        inputs=tuple(inputs),
        input_axes=restriction.input_axes,
        result=node.results[0].type,
        axis=restriction.axis,
        count=_COPIES,
        positions=positions,
        causal=restriction.causal,
    )
    return node.operation.restrict(rows, node.attributes)


def _batch_axis(type: TensorType) -> int | None:
    """The one axis that is the batch; None where there is none, several, or a multiple."""
    axes = batch_axes(type)
    return axes[0] if len(axes) == 1 and type.shape[axes[0]] == Batch() else None


def _reduced(type: TensorType, axis: int, result: TensorType) -> TensorType:
    """The type of an operand's rows.

    An operand that no record has of its own gets the batch: it is aligned to the result's rank.
    """
    shape: list[Dimension] = list(type.shape)
    shape[axis] = _COPIES
    if _batch_axis(type) is None:
        shape = [*[1] * (result.rank - type.rank), *shape]
        shape[0] = Batch()
    return type.with_shape(shape)


class _Builder:
    """Builds the new graph by the plan."""

    def __init__(self, graph: Graph, plan: dict[Node, _Restriction]) -> None:
        self.graph = graph
        self.plan = plan
        self.rewriter = Rewriter(graph)
        self.rows: dict[Value, Value] = {}
        self.gathered: dict[tuple[Value, int, int], Value] = {}
        self.at = Value(TensorType(DType.I32, (Batch(),)), name=INPUT)
        column = self.add("unsqueeze", self.inside(), axis=(1,))
        self.positions = self.add("concat", *[column] * _COPIES, axis=1)
        self.indices = self.add("unsqueeze", self.positions, axis=(2,))

    def build(self) -> Graph:
        for node in self.graph.nodes:
            if node in self.plan:
                self.restrict(node, self.plan[node])
            elif all(value in self.rewriter for value in node.inputs):
                self.rewriter.keep(node)
        outputs = {
            name: self.add("slice", self.row(value, 1), axis=1, to=1, **{"from": 0, "step": 1})
            for name, value in self.graph.outputs.items()
        }
        return Graph(
            inputs=[*self.graph.inputs, self.at],
            weights=dict(self.graph.weights),
            nodes=self.rewriter.nodes,
            outputs=outputs,
        )

    def inside(self) -> Value:
        """`at`, a negative one replaced by one past the end: it must stop a call and not count from
        the end, as what reads it otherwise would."""
        length = next(iter(self.graph.outputs.values())).type.shape[1]
        zero, end = (self.add("constant", value=np.asarray(n, np.int32)) for n in (0, length))
        return self.add("where", self.add("<", self.at, zero), end, self.at)

    def restrict(self, node: Node, restriction: _Restriction) -> None:
        inputs = [
            self.rewriter[value]
            if axis is None
            else self.operand(value, axis, node.results[0].type)
            for value, axis in zip(node.inputs, restriction.input_axes, strict=True)
        ]
        changed = _apply(node, restriction, inputs, self.positions)
        assert changed is not None
        new = make_node(node.operation, *changed, position=node.position, scope=node.scope)
        self.rewriter.nodes.append(new)
        self.rows.update(zip(node.results, new.results, strict=True))

    def operand(self, value: Value, axis: int, result: TensorType) -> Value:
        """The rows of an operand, with the batch even where it had none."""
        if _batch_axis(value.type) is not None:
            return self.row(value, axis)
        key = (value, axis, result.rank)
        if key not in self.gathered:
            taken = self.add("take", self.rewriter[value], self.positions, axis=axis)
            # [before…, batch, copies, after…] to [batch, 1…, before…, copies, after…]
            order = [axis, *range(axis), *range(axis + 1, taken.type.rank)]
            moved = self.add("permute", taken, axes=tuple(order))
            # The result's first axis is the batch, which this operand had 1 or nothing for.
            shape = _reduced(value.type, axis, result).shape
            self.gathered[key] = self.add("reshape", moved, shape=shape)
        return self.gathered[key]

    def row(self, value: Value, axis: int) -> Value:
        """The rows of a value that has the batch: computed as rows, or gathered."""
        if value in self.rows:
            return self.rows[value]
        key = (value, axis, value.type.rank)
        if key not in self.gathered:
            batch = value.type.shape.index(Batch())
            rank = value.type.rank
            order = [batch, axis, *(i for i in range(rank) if i not in (batch, axis))]
            whole = self.rewriter[value]
            if order != list(range(rank)):
                whole = self.add("permute", whole, axes=tuple(order))
            taken = self.add("gather-nd", whole, self.indices, **{"batch-dims": 1})
            if order != list(range(rank)):
                back = tuple(order.index(i) for i in range(rank))
                taken = self.add("permute", taken, axes=back)
            self.gathered[key] = taken
        return self.gathered[key]

    def add(self, name: str, *inputs: Value, **attributes: object) -> Value:
        node = make_node(all_operations()[name], inputs, attributes, scope=INPUT)
        self.rewriter.nodes.append(node)
        return node.results[0]
