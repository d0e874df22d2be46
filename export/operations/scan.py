"""scan: a function that runs along an axis, from one step to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from sexpgpu.export.graph.axes import Mixed, State, batch_axes, join, trace_axes
from sexpgpu.export.graph.graph import Attributes, Graph, Value
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array, Batch, TensorType, concrete, format_shape
from sexpgpu.export.onnx.loop import add_scan
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.translate import translate_nodes
from sexpgpu.export.operations.operation import (
    UNREAD,
    WHOLE,
    Apart,
    Causal,
    Fate,
    Operation,
    Rows,
    operation,
)
from sexpgpu.export.operations.rules import fail_shape, fail_value, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature

_MOST_STEPS = 1 << 20


@operation
class Scan(Operation):
    """Runs the graph `body` once for each position of an axis, in order, or from the end with
    `reverse`; carries go from one step to the next.

    The operands are `carries` initial carries, `sequences` tensors that are cut along `axis`, and
    what else the body reads.  The inputs of the body are the carries, one slice of each sequence,
    without the axis, and the rest as it is; its outputs are the next carries and what the step
    adds.  The results are the carries after the last step, and what the steps added, stacked along
    `axis` at the positions of their slices.

    ONNX: Scan.
    """

    name = "scan"
    family = "recurrence"
    signature = signature(
        Operand("operands", group="", variadic=True),
        Attribute("body", Kind.GRAPH),
        Attribute("carries", Kind.INTEGER),
        Attribute("sequences", Kind.INTEGER),
        Attribute("axis", Kind.INTEGER, 0),
        Attribute("reverse", Kind.BOOLEAN, False),
    )
    constraints = (
        "There is at least one sequence, and the body has an input for every operand, an output "
        "for every carry, and an output besides where there is no carry.",
        "`axis` is an axis of every sequence, and they are equally long there, at most 1,048,576. "
        "It is not the batch.",
        "The body's inputs have the types of the carries, of the slices and of the rest.",
        "A step leaves every carry of the type that it was.",
        "`axis` counts at most the axes of what a step adds.",
    )
    example = (
        "(scan (fn (total x) (let (t (+ total x)) (list t t)))\n"
        "      (tensor 0.0) (tensor (list 1.0 2.0 3.0)))",
        "(list 6.0 [1.0 3.0 6.0])",
    )
    moves_data = True
    gives_list = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        body: Graph = attributes["body"]
        carries, sequences = attributes["carries"], attributes["sequences"]
        outputs = [value.type for value in body.outputs.values()]
        if (
            carries < 0
            or sequences < 1
            or carries + sequences > len(inputs)
            or len(body.inputs) != len(inputs)
            or body.weights
            or len(outputs) < max(carries, 1)
        ):
            fail_value(
                "the body of `scan` does not fit its operands",
                came=f"{len(inputs)} operands, of which {carries} carries and {sequences} "
                f"sequences, and a body with {len(body.inputs)} inputs and {len(outputs)} outputs",
                expected="a sequence, an input for every operand, and an output for every carry",
            )
        axis = attributes["axis"]
        length = _length(inputs[carries : carries + sequences], axis)
        for index, (value, type) in enumerate(zip(body.inputs, inputs, strict=True)):
            if carries <= index < carries + sequences:
                type = type.with_shape((*type.shape[:axis], *type.shape[axis + 1 :]))
            if value.type != type:
                fail_shape(
                    f"input {index} of the body of `scan` has another type than what it is given",
                    came=str(type),
                    expected=str(value.type),
                )
        for index, (given, left) in enumerate(zip(inputs[:carries], outputs, strict=False)):
            if given != left:
                fail_shape(
                    "a step of `scan` leaves a carry of another type than it was",
                    came=f"carry {index} is {given} before a step and {left} after it",
                    help="a carry keeps its shape and dtype",
                )
        for type in outputs[carries:]:
            if axis > type.rank:
                fail_shape(
                    "`scan` stacks its results along an axis that they would not have",
                    came=f"axis {axis}, and a step gives {type}",
                    expected=f"an axis of at most {type.rank}",
                )
        stacked = [
            type.with_shape((*type.shape[:axis], length, *type.shape[axis:]))
            for type in outputs[carries:]
        ]
        return [*outputs[:carries], *stacked]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        body: Graph = attributes["body"]
        count, sequences = attributes["carries"], attributes["sequences"]
        axis, batch = attributes["axis"], attributes["batch"]
        carries, captured = list(inputs[:count]), list(inputs[count + sequences :])
        sliced = inputs[count : count + sequences]
        names = [value.name for value in body.inputs]
        steps = range(sliced[0].shape[axis])
        stacked: dict[int, list[Array]] = {}
        for step in reversed(steps) if attributes["reverse"] else steps:
            slices = [np.take(array, step, axis) for array in sliced]
            feeds = dict(zip(names, [*carries, *slices, *captured], strict=True))
            outputs = list(evaluate(body, feeds, {}, batch).values())
            carries, stacked[step] = outputs[:count], outputs[count:]
        results = []
        for index, value in enumerate(list(body.outputs.values())[count:]):
            if stacked:
                results.append(np.stack([stacked[step][index] for step in steps], axis))
            else:
                shape = list(concrete(value.type.shape, batch))
                results.append(np.empty((*shape[:axis], 0, *shape[axis:]), value.type.dtype.numpy))
        return [*carries, *results]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        body: Graph = attributes["body"]
        count, sequences, axis = (attributes[key] for key in ("carries", "sequences", "axis"))
        outputs = list(body.outputs.values())
        if inputs[count].shape[axis] == 0:
            # Runtimes refuse to take no step.
            empty = [onnx.add("ConstantOfShape", onnx.shape(t.shape)) for t in results[count:]]
            stacked = [
                onnx.cast(name, type.dtype)
                for name, type in zip(empty, results[count:], strict=True)
            ]
            return [*(value.name for value in inputs[:count]), *stacked]

        def step(
            carries: list[OnnxValue], slices: list[OnnxValue], reads: list[OnnxValue]
        ) -> tuple[Sequence[str], Sequence[str]]:
            known = dict(zip(body.inputs, [*carries, *slices, *reads], strict=True))
            translate_nodes(onnx, body.nodes, known)
            names = [known[value].name for value in outputs]
            return names[:count], names[count:]

        return add_scan(
            onnx,
            inputs[:count],
            inputs[count : count + sequences],
            step,
            [value.type for value in outputs[count:]],
            axis=axis,
            reverse=attributes["reverse"],
            reads=inputs[count + sequences :],
        )

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        # A scan inside a scan is asked for each step of the outer one's dataflow: answers are kept,
        # lest the time grow as a power of the depth.
        known = _fates.setdefault(attributes["body"], {})
        plain = tuple(attributes[name] for name in ("carries", "sequences", "axis", "reverse"))
        key = (operand, axis, plain)
        if key not in known:
            known[key] = _follow(operand, axis, inputs, attributes)
        return known[key]

    def restrict(self, rows: Rows, attributes: Attributes) -> None:
        # The types of the body speak of every axis.
        return None

    def varies_along(self, attributes: Attributes, result: TensorType) -> frozenset[int]:
        body: Graph = attributes["body"]
        starts: dict[Value, State] = {}
        for value in body.inputs:
            for axis in batch_axes(value.type):
                starts[value] = Apart(axis)
        states = _trace(body, attributes["carries"], starts, batch=True)
        axes = frozenset(range(result.rank))
        if any(isinstance(state, Mixed) for state in states):
            return axes
        # What a body makes along other axes is not followed.
        return axes - frozenset(batch_axes(result))


#: The fates that were found for a body: by operand, axis, and the attributes beside the body.
_fates: WeakKeyDictionary[Graph, dict[tuple[object, ...], list[Fate]]] = WeakKeyDictionary()


def _follow(
    operand: int, axis: int, inputs: Sequence[TensorType], attributes: Attributes
) -> list[Fate]:
    """What becomes of an axis, by following it through the body."""
    body: Graph = attributes["body"]
    count, along = attributes["carries"], attributes["axis"]
    is_sequence = count <= operand < count + attributes["sequences"]
    if is_sequence and axis == along:
        return _fates_along(body, count, operand, attributes)
    inner = axis - 1 if is_sequence and axis > along else axis
    batch = isinstance(inputs[operand].shape[axis], Batch)
    states = _trace(body, count, {body.inputs[operand]: Apart(inner)}, batch=batch)
    return [_fate(state, along if index >= count else None) for index, state in enumerate(states)]


def _length(sequences: Sequence[TensorType], axis: int) -> int:
    for type in sequences:
        if not 0 <= axis < type.rank:
            fail_value(
                "`scan` is given an axis that a sequence does not have",
                came=f"axis {axis} of {type}",
                expected=f"0 to {type.rank - 1}" if type.rank else "a tensor with an axis",
            )
    lengths = {type.shape[axis] for type in sequences}
    if len(lengths) > 1:
        fail_shape(
            "the sequences of `scan` are not equally long",
            came=" and ".join(format_shape(type.shape) for type in sequences),
            expected=f"equal lengths along axis {axis}",
        )
    steps = known("scan", "the number of steps", lengths.pop())
    if steps > _MOST_STEPS:
        fail_value(
            "`scan` takes too many steps", came=f"{steps:,}", expected=f"at most {_MOST_STEPS:,}"
        )
    return steps


def _trace(body: Graph, carries: int, starts: Mapping[Value, State], *, batch: bool) -> list[State]:
    """The states of the carries after any number of steps, and of what steps add."""
    outputs = list(body.outputs.values())
    states: dict[Value, State] = dict.fromkeys(body.inputs) | dict(starts)
    while True:
        found = trace_axes(body, states, batch=batch, causal=not batch)
        grown = dict(states)
        for before, after in zip(body.inputs, outputs[:carries], strict=False):
            if found[after] is not None:
                # Without nodes nothing moves an axis, and no two states can disagree.
                blame = Mixed(body.nodes[-1], None) if body.nodes else states[before]
                grown[before] = join(states[before], found[after], blame)
        if grown == states:
            return [states[v] for v in body.inputs[:carries]] + [
                found[v] for v in outputs[carries:]
            ]
        states = grown


def _fate(state: State, stacked_along: int | None) -> Fate:
    """The fate that a state of the body's output is; results of steps get an axis more."""
    if state is None:
        return UNREAD
    if isinstance(state, Mixed):
        return WHOLE
    if stacked_along is None or state.axis < stacked_along:
        return state
    return type(state)(state.axis + 1)


def _fates_along(body: Graph, carries: int, operand: int, attributes: Attributes) -> list[Fate]:
    """What becomes of the axis of a sequence along which the steps go."""
    sequence = body.inputs[operand]
    reads = _reads(body)
    outputs = [reads[value] for value in body.outputs.values()]
    holding: set[Value] = set()
    while True:
        # The carries that hold something of the sequence after a step, and after more of them.
        more = {
            before
            for before, read in zip(body.inputs[:carries], outputs, strict=False)
            if sequence in read or holding & read
        }
        if more <= holding:
            break
        holding |= more
    fates: list[Fate] = []
    for index, read in enumerate(outputs):
        if holding & read and index >= carries:
            fates.append(WHOLE if attributes["reverse"] else Causal(attributes["axis"]))
        elif sequence in read or holding & read:
            fates.append(WHOLE if index < carries else Apart(attributes["axis"]))
        else:
            fates.append(UNREAD)
    return fates


def _reads(body: Graph) -> dict[Value, frozenset[Value]]:
    """The inputs of the body that each of its values depends on."""
    found = {value: frozenset({value}) for value in body.inputs}
    for node in body.nodes:
        read = frozenset[Value]().union(*(found[value] for value in node.inputs))
        found.update(dict.fromkeys(node.results, read))
    return found
