"""Operations that select, repeat or extend along axes by fixed amounts."""

from __future__ import annotations

from collections.abc import Sequence

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array, Batch, Dimension, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import fail_batch, fail_value, normalize_axis
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature

#: Past any bound on the left, for a slice that runs backwards to the first position.
_BEFORE_FIRST = -(2**63) + 1


@operation
class Slice(Operation):
    """The positions `:from` up to but without `:to` of an axis, every `:step`-th of them.

    As a Python slice: negative bounds count from the end, bounds past an end are that end, a
    negative step goes backwards.

    ONNX: Slice.
    """

    name = "slice"
    family = "shape"
    signature = signature(
        Operand("x"),
        Attribute("axis", Kind.INTEGER, 0),
        Attribute("from", Kind.INTEGER, None),
        Attribute("to", Kind.INTEGER, None),
        Attribute("step", Kind.INTEGER, 1),
    )
    constraints = ("The step is not 0.", "The axis is not the batch.")
    example = ("(slice (tensor (list 1 2 3 4)) :from 1 :to -1)", "[2 3]")
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        shape = list(inputs[0].shape)
        axis = normalize_axis(self.name, attributes["axis"], len(shape))
        if attributes["step"] == 0:
            fail_value("the step of `slice` is 0", came="0", expected="any other whole number")
        shape[axis] = len(self._positions(shape[axis], attributes))
        return [inputs[0].with_shape(shape)]

    def _positions(self, length: Dimension, attributes: Attributes) -> range:
        if isinstance(length, Batch):
            fail_batch(
                "`slice` cannot take part of the batch",
                came=f"an axis of length {length}",
                help="the batch's records must stay together; slice another `:axis`",
            )
        bounds = slice(attributes["from"], attributes["to"], attributes["step"])
        return range(*bounds.indices(length))

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        axis = attributes["axis"] % inputs[0].ndim
        bounds = slice(attributes["from"], attributes["to"], attributes["step"])
        return [inputs[0][(slice(None),) * axis + (bounds,)]]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axis = attributes["axis"] % inputs[0].type.rank
        positions = self._positions(inputs[0].shape[axis], attributes)
        if _all_in_order(positions, inputs[0].shape[axis]):
            return [inputs[0].name]
        start, stop, step = positions.start, positions.stop, positions.step
        if not positions:
            start, stop, step = 0, 0, 1
        elif stop < 0:
            stop = _BEFORE_FIRST
        bounds = ([start], [stop], [axis], [step])
        return [onnx.add("Slice", inputs[0].name, *map(onnx.ints, bounds))]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        if axis != attributes["axis"] % inputs[0].rank:
            return [Apart(axis)]
        positions = self._positions(inputs[0].shape[axis], attributes)
        return [Apart(axis) if _all_in_order(positions, inputs[0].shape[axis]) else WHOLE]


def _all_in_order(positions: range, length: Dimension) -> bool:
    return isinstance(length, int) and positions == range(length)
