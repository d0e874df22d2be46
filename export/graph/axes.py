"""Where an axis goes: forward dataflow over a graph by the axis rules of its operations.

It answers, for every value, along which of its axes the positions of the starting axes still
stand apart, or which operation first mixes them.  The proof that records of a batch do not meet
and the axis rule of `scan` both stand on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sexpgpu.export.graph.graph import Graph, Node, Value
from sexpgpu.export.graph.types import Batch, TensorType
from sexpgpu.export.operations.operation import Apart, Causal, Unread


@dataclass(frozen=True, slots=True)
class Mixed:
    """Positions meet: `node` is the first operation that lets them, by its input number `operand`.

    `operand` is None where the node does it by itself: it makes values that tell positions apart
    by their number, or that hold the batch along two axes.
    """

    node: Node
    operand: int | None


#: None: the value has nothing of the axis.  Apart: its axis holds it, position for position.
#: Causal: likewise, and a position reads those before it too.
State: TypeAlias = Apart | Causal | Mixed | None


def trace_axes(
    graph: Graph,
    starts: Mapping[Value, State],
    *,
    batch: bool = False,
    causal: bool = False,
) -> dict[Value, State]:
    """The state of every value, given those of some inputs or weights.

    Operands of one node that have the axis must agree where in the result it is, else it is mixed
    there.  With `causal`, an axis in causal order is followed; without, it counts as mixed.

    With `batch`, the axis followed is the symbolic batch.  Then every symbolic dimension counts,
    also of a value that is the same for each record: its records are apart as well, until
    something counts them or numbers them.
    """
    states: dict[Value, State] = {}
    for value in (*graph.inputs, *graph.weights.values()):
        states[value] = starts.get(value)
    for node in graph.nodes:
        inputs = [states[value] for value in node.inputs]
        for value, state in zip(node.results, _through(node, inputs, causal), strict=True):
            states[value] = _of_batch(node, value.type, state) if batch else state
    return states


def join(a: State, b: State, blame: State) -> State:
    """The state of what is computed from two values alike; `blame` where they disagree."""
    if a is None or isinstance(b, Mixed):
        return a if isinstance(a, Mixed) else b
    if b is None or isinstance(a, Mixed):
        return a
    if a.axis != b.axis:
        return blame
    return a if isinstance(a, Causal) else b


def batch_axes(type: TensorType) -> list[int]:
    """The axes whose length is the batch, or a multiple of it."""
    return [axis for axis, d in enumerate(type.shape) if isinstance(d, Batch)]


def _through(node: Node, inputs: Sequence[State], causal: bool) -> list[State]:
    """The states of a node's results, given those of its inputs."""
    results: list[State] = [None] * len(node.results)
    for operand, state in enumerate(inputs):
        if state is None:
            continue
        blame = Mixed(node, operand)
        if isinstance(state, Mixed):
            # What an earlier node mixed stays that node's doing.
            results = [join(result, state, blame) for result in results]
            continue
        fates = node.operation.axis_rule(
            operand, state.axis, node.input_types, node.attributes, node.result_types
        )
        for index, fate in enumerate(fates):
            if isinstance(fate, Unread):
                continue
            moved: State = blame
            if isinstance(fate, Apart):
                moved = Causal(fate.axis) if isinstance(state, Causal) else fate
            elif isinstance(fate, Causal) and causal:
                moved = fate
            results[index] = join(results[index], moved, blame)
    return results


def _of_batch(node: Node, type: TensorType, state: State) -> State:
    """A result's state where the axis followed is the batch."""
    if isinstance(state, Mixed):
        return state
    axes = batch_axes(type)
    if state is None and not axes:
        return None
    if not axes or len(axes) > 1 or (state is not None and state.axis != axes[0]):
        return Mixed(node, None)
    if axes[0] in node.operation.varies_along(node.attributes, type):
        return Mixed(node, None)
    return Apart(axes[0]) if state is None else state
