"""The proof that records of a batch do not meet: only such a model may ever run them together."""

from __future__ import annotations

from dataclasses import dataclass

from sexpgpu.export.graph.axes import Mixed, State, batch_axes, trace_axes
from sexpgpu.export.graph.graph import Graph, Node, Value
from sexpgpu.export.graph.types import format_shape
from sexpgpu.export.operations.operation import Apart


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether each record's outputs depend on that record alone, or why that is not proved.

    `node` is the first operation that mixes records, where one does.
    """

    independent: bool
    reason: str = ""
    node: Node | None = None


def prove_independence(graph: Graph) -> Verdict:
    """Follows the batch from axis 0 of every input to axis 0 of every output.

    The dataflow reads nothing but the operations' axis rules, so that a model is called independent
    only where they prove it.
    """
    starts: dict[Value, State] = {}
    for value in graph.inputs:
        if batch_axes(value.type) != [0]:
            return Verdict(
                False,
                f"the input `{value.name}` {format_shape(value.type.shape)} does not have the "
                "batch as its first axis",
            )
        starts[value] = Apart(0)
    states = trace_axes(graph, starts, batch=True)
    for name, value in graph.outputs.items():
        state = states[value]
        if isinstance(state, Mixed):
            return Verdict(False, f"`{name}`: {explain(state)}", state.node)
        if state is None:
            return Verdict(False, f"`{name}` is the same for every record, and has no batch axis")
        if state.axis != 0:
            return Verdict(False, f"`{name}` has the batch as axis {state.axis}, not first")
    return Verdict(True)


def explain(mixed: Mixed) -> str:
    """Which operation mixes records, and where it stands."""
    node = mixed.node
    where = f" at {node.position}" if node.position else ""
    if mixed.operand is None:
        return f"`{node.operation.name}`{where} tells records by their place in the batch"
    operand = node.operation.operand_names(node.attributes, len(node.inputs))[mixed.operand]
    shape = format_shape(node.inputs[mixed.operand].type.shape)
    return f"`{node.operation.name}`{where} mixes the records of its `{operand}` {shape}"
