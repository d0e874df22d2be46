"""Operations that take positions of an axis, some of them or all in another order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array, Batch, Dimension, Shape, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import (
    WHOLE,
    Apart,
    Causal,
    Fate,
    Operation,
    operation,
)
from sexpgpu.export.operations.rules import (
    fail_batch,
    fail_value,
    fitting,
    known,
    normalize_axes,
    normalize_axis,
)
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
    constraints = ("The step is not 0.", "The axis is not the batch.", "`x` has the axis.")
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


@operation
class Flip(Operation):
    """The positions of the axes in reverse order.

    As `numpy.flip`.

    ONNX: Slice with step -1.
    """

    name = "flip"
    family = "shape"
    signature = signature(Operand("x"), Attribute("axis", Kind.INTEGERS, (-1,)))
    constraints = ("The axes are different axes of `x`.",)
    example = ("(flip (tensor (list (list 1 2) (list 3 4))))", "[[2 1] [4 3]]")
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        normalize_axes(self.name, attributes["axis"], inputs[0].rank)
        return [inputs[0]]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [np.flip(inputs[0], attributes["axis"])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axes = normalize_axes(self.name, attributes["axis"], inputs[0].type.rank)
        if not axes:
            return [inputs[0].name]
        count = len(axes)
        bounds = ([-1] * count, [_BEFORE_FIRST] * count, axes, [-1] * count)
        return [onnx.add("Slice", inputs[0].name, *map(onnx.ints, bounds))]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        axes = normalize_axes(self.name, attributes["axis"], inputs[0].rank)
        return [WHOLE if axis in axes else Apart(axis)]


def first_positions(shape: Shape, attributes: Attributes) -> dict[int, int]:
    """The position of each axis of a roll that comes first in the result."""
    axes = normalize_axes("roll", attributes["axis"], len(shape))
    shifts = attributes["shift"]
    if len(shifts) not in (1, len(axes)):
        fail_value(
            "`roll` has one shift, or one for each axis",
            came=f"{len(shifts)} shifts and {len(axes)} axes",
        )
    each = shifts if len(shifts) == len(axes) else shifts * len(axes)
    lengths = [known("roll", "how long the axis is", shape[axis]) for axis in axes]
    # A shift may be larger than any index.
    return {
        axis: -shift % length if length else 0
        for axis, shift, length in zip(axes, each, lengths, strict=True)
    }


@operation
class Roll(Operation):
    """The positions of axes moved on by shifts; what leaves at the end comes in at the start.

    As `numpy.roll`; a negative shift moves back.  Of several axes each has its own shift, or all
    have one.

    ONNX: two Slices and a Concat an axis.
    """

    name = "roll"
    family = "shape"
    signature = signature(
        Operand("x"),
        Attribute("shift", Kind.INTEGERS, keyword=False),
        Attribute("axis", Kind.INTEGERS, (-1,)),
    )
    constraints = (
        "The axes are different axes of `x`.",
        "No axis is the batch.",
        "There is one shift, or one for each axis.",
    )
    example = ("(roll (tensor (list 1 2 3 4)) 1)", "[4 1 2 3]")
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        first_positions(inputs[0].shape, attributes)
        return [inputs[0]]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        firsts = first_positions(inputs[0].shape, attributes)
        return [np.roll(inputs[0], [-first for first in firsts.values()], tuple(firsts))]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        rolled = inputs[0].name
        for axis, first in first_positions(inputs[0].shape, attributes).items():
            if first == 0:
                continue
            length = known(self.name, "how long the axis is", inputs[0].shape[axis])
            parts = [
                onnx.add("Slice", rolled, onnx.ints([start]), onnx.ints([stop]), onnx.ints([axis]))
                for start, stop in ((first, length), (0, first))
            ]
            rolled = onnx.add("Concat", *parts, axis=axis)
        return [rolled]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [WHOLE if first_positions(inputs[0].shape, attributes).get(axis) else Apart(axis)]


@operation
class Shift(Operation):
    """The positions of an axis moved on by a count; `:value` comes in at the start.

    A negative count moves back, and the value comes in at the end.  By 1 along time it gives each
    position what stood before it (the token shift of RWKV); it is causal where it moves on.

    ONNX: Slice, then Pad; on bf16 through f32, exactly.
    """

    name = "shift"
    family = "shape"
    signature = signature(
        Operand("x"),
        Attribute("count", Kind.INTEGER, keyword=False),
        Attribute("axis", Kind.INTEGER, -1),
        Attribute("value", Kind.NUMBER, 0.0),
    )
    constraints = ("`x` has the axis.", "The axis is not the batch.", "The dtype has the value.")
    example = ("(shift (tensor (list 1 2 3 4)) 1)", "[0 1 2 3]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        fitting(self.name, attributes["value"], inputs[0].dtype)
        self._widths(inputs[0].shape, attributes)
        return [inputs[0]]

    def _widths(self, shape: Shape, attributes: Attributes) -> tuple[int, int, int]:
        """The axis, and how many positions come in at its start and at its end."""
        axis = normalize_axis(self.name, attributes["axis"], len(shape))
        length = known(self.name, "how long the axis is", shape[axis])
        count = min(max(attributes["count"], -length), length)
        return axis, max(count, 0), max(-count, 0)

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x = inputs[0]
        axis, start, end = self._widths(x.shape, attributes)
        before = (slice(None),) * axis
        result = np.full(x.shape, attributes["value"], x.dtype)
        length = x.shape[axis]
        result[*before, start : length - end] = x[*before, end : length - start]
        return [result]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        x = inputs[0]
        axis, start, end = self._widths(x.shape, attributes)
        length = known(self.name, "how long the axis is", x.shape[axis])
        value = onnx.constant(fitting(self.name, attributes["value"], x.dtype))
        if start == end:
            return [x.name]
        if start + end == length:
            return [onnx.add("Expand", value, onnx.shape(x.shape))]
        bounds = (onnx.ints([n]) for n in (end, length - start, axis))
        counts = [0] * 2 * x.type.rank
        counts[axis], counts[x.type.rank + axis] = start, end
        return [onnx.add("Pad", onnx.add("Slice", x.name, *bounds), onnx.ints(counts), value)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        moved, start, end = self._widths(inputs[0].shape, attributes)
        if axis != moved or start == end:
            return [Apart(axis)]
        return [Causal(axis) if start else WHOLE]


def _all_in_order(positions: range, length: Dimension) -> bool:
    return isinstance(length, int) and positions == range(length)
