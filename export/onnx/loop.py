"""Steps along an axis, each of which reads what the one before made: ONNX's Scan, or its steps.

The Scan is of the form that every runtime which knows it agrees on: forward, along the first axis,
and its body reads from outside what is stored in the file alone.  ONNX's reference evaluator has
no other axis and direction, tract takes a reversed one for one that is not, and OpenVINO knows
nothing in a body that was computed outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import NodeProto, ValueInfoProto, helper

from sexpgpu.export.graph.types import DType, TensorType
from sexpgpu.export.onnx.lowering import ONNX_DTYPES, Lowering, OnnxValue
from sexpgpu.schemas.errors import SexpgpuError

#: From the carries, the slices of one step and what it reads besides: the next carries, and what is
#: stacked.
Step = Callable[
    [list[OnnxValue], list[OnnxValue], list[OnnxValue]], tuple[Sequence[str], Sequence[str]]
]

#: Elements up to which what a body reads from outside goes from step to step: a runtime copies it.
_PASSED = 2**14

#: Nodes that steps may be written out to.
_MOST_NODES = 200_000


def add_scan(
    onnx: Lowering,
    carries: Sequence[OnnxValue],
    sequences: Sequence[OnnxValue],
    step: Step,
    stacked: Sequence[TensorType],
    *,
    axis: int,
    reverse: bool = False,
    reads: Sequence[OnnxValue] = (),
) -> list[str]:
    """The final carries, then the stacked results, whose types for one step are `stacked`.

    `step` adds the nodes of the body, which may read any value from outside it; what was computed
    there had better be among `reads`.  Sequences are sliced, and results stacked, along `axis`.
    Runtimes need at least one step.  Raises E-EXPORT-008 where steps are to be written out and are
    too many.
    """
    if onnx.unroll:
        return _write_out(onnx, carries, sequences, step, axis, reverse, reads)
    passed = [value for value in reads if _is_passed(value)]
    first = [_to_front(onnx, value, axis, reverse) for value in sequences]
    with onnx.body() as nodes:
        before = [_inside(onnx, "carry", value.type) for value in carries]
        inner = [_inside(onnx, "read", value.type) for value in passed]
        slices = [_inside(onnx, "slice", _without(value.type, axis)) for value in sequences]
        known = {value.name: own for value, own in zip(passed, inner, strict=True)}
        after, made = step(before, slices, [known.get(value.name, value) for value in reads])
        outputs = _distinct(onnx, nodes, [*after, *(value.name for value in inner), *made])
    states = [value.type for value in (*carries, *passed)]
    body = helper.make_graph(
        nodes,
        "step",
        [_declare(value.name, value.type) for value in (*before, *inner, *slices)],
        [_declare(name, type) for name, type in zip(outputs, [*states, *stacked], strict=True)],
    )
    results = onnx.add(
        "Scan",
        *(value.name for value in (*carries, *passed)),
        *first,
        outputs=len(states) + len(stacked),
        body=body,
        num_scan_inputs=len(sequences),
    )
    last = [
        _from_front(onnx, name, type, axis, reverse)
        for name, type in zip(results[len(states) :], stacked, strict=True)
    ]
    return [*results[: len(carries)], *last]


def _write_out(
    onnx: Lowering,
    carries: Sequence[OnnxValue],
    sequences: Sequence[OnnxValue],
    step: Step,
    axis: int,
    reverse: bool,
    reads: Sequence[OnnxValue],
) -> list[str]:
    """The same without a loop: every step's nodes, one after another."""
    length = sequences[0].shape[axis]
    assert isinstance(length, int)
    states = list(carries)
    made: list[list[str]] = []
    for position in reversed(range(length)) if reverse else range(length):
        index = onnx.scalar(position, DType.I64)
        slices = [
            OnnxValue(onnx.add("Gather", s.name, index, axis=axis), _without(s.type, axis))
            for s in sequences
        ]
        after, results = step(states, slices, list(reads))
        states = [OnnxValue(name, old.type) for name, old in zip(after, carries, strict=True)]
        made.append([onnx.add("Unsqueeze", name, onnx.ints([axis])) for name in results])
        if len(onnx.nodes) > _MOST_NODES:
            raise SexpgpuError(
                "E-EXPORT-008",
                f"the model has too many steps to be written one after another, {length} of them "
                "here",
                expected=f"at most {_MOST_NODES:,} nodes",
                help="leave --unroll out, or make the sequence shorter",
            )
    if reverse:
        made.reverse()
    stacked = [onnx.add("Concat", *parts, axis=axis) for parts in zip(*made, strict=True)]
    return [*(value.name for value in states), *stacked]


def _is_passed(value: OnnxValue) -> bool:
    """Whether it is computed, and so small that it costs nothing to go from step to step."""
    if value.weight or value.array is not None:
        return False
    elements = 1
    for dimension in value.shape:
        elements *= dimension if isinstance(dimension, int) else 1
    return elements <= _PASSED


def _to_front(onnx: Lowering, value: OnnxValue, axis: int, reverse: bool) -> str:
    """The sequence with its steps along the first axis, in the order in which they are taken."""
    name = value.name
    if axis:
        others = [a for a in range(value.type.rank) if a != axis]
        name = onnx.add("Transpose", name, perm=[axis, *others])
    return _reversed(onnx, name) if reverse else name


def _from_front(onnx: Lowering, name: str, step: TensorType, axis: int, reverse: bool) -> str:
    """Results that are stacked along the first axis, along the axis that is wanted."""
    if reverse:
        name = _reversed(onnx, name)
    if not axis:
        return name
    order = list(range(1, step.rank + 1))
    order.insert(axis, 0)
    return onnx.add("Transpose", name, perm=order)


def _reversed(onnx: Lowering, name: str) -> str:
    """Along the first axis, from its end."""
    ends = onnx.ints([-1]), onnx.ints([-(2**31)])
    return onnx.add("Slice", name, *ends, onnx.ints([0]), onnx.ints([-1]))


def _inside(onnx: Lowering, name: str, type: TensorType) -> OnnxValue:
    return OnnxValue(onnx.names.fresh(name), type)


def _distinct(onnx: Lowering, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[str]:
    """Each output as the result of a node of the body, and no two the same."""
    made = {name for node in nodes for name in node.output}
    found: list[str] = []
    for name in outputs:
        fits = name in made and name not in found
        found.append(name if fits else onnx.add("Identity", name))
    return found


def _declare(name: str, type: TensorType) -> ValueInfoProto:
    """The batch has its name: what is left open here would be unknown to what reads the results."""
    dimensions = [d if isinstance(d, int) else str(d) for d in type.shape]
    return helper.make_tensor_value_info(name, ONNX_DTYPES[type.dtype], dimensions)


def _without(type: TensorType, axis: int) -> TensorType:
    return type.with_shape((*type.shape[:axis], *type.shape[axis + 1 :]))
