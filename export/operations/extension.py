"""Operations that make axes longer: with values around, or by repeating."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import (
    MAXIMUM_ELEMENTS,
    Array,
    Batch,
    Dimension,
    TensorType,
    format_shape,
    multiply,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import fail_batch, fail_value, fitting
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class Pad(Operation):
    """More positions before and after those of each axis.

    They hold `:value` (mode `constant`), the nearest element (`edge`), or the elements mirrored
    about the first and the last, which are not repeated (`reflect`). As `numpy.pad`.

    ONNX: Pad; on bf16 through f32, exactly.
    """

    name = "pad"
    family = "shape"
    signature = signature(
        Operand("x"),
        Attribute("before", Kind.INTEGERS, None),
        Attribute("after", Kind.INTEGERS, None),
        Attribute("value", Kind.NUMBER, 0.0),
        Attribute("mode", Kind.WORD, "constant", choices=("constant", "edge", "reflect")),
    )
    constraints = (
        "`:before` and `:after` have a number for each axis, 0 or more; nil is 0 for all.",
        "The batch is not padded.",
        "The dtype has the value.",
        "`edge` needs an element on an axis that it pads; `reflect` one more than it adds on a "
        "side.",
    )
    example = ("(pad (tensor (list 1 2)) :before 1 :after 2)", "[0 1 2 0 0]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x = inputs[0]
        fitting(self.name, attributes["value"], x.dtype)
        widths = self._widths(x.rank, attributes)
        return [
            x.with_shape(
                [self._length(d, w, x, attributes) for d, w in zip(x.shape, widths, strict=True)]
            )
        ]

    def _widths(self, rank: int, attributes: Attributes) -> list[tuple[int, int]]:
        """How many positions come before and after, for each axis."""
        sides = []
        for side in ("before", "after"):
            counts = (0,) * rank if attributes[side] is None else attributes[side]
            if len(counts) != rank or min(counts, default=0) < 0:
                fail_value(
                    f"`pad` needs a number for each axis in `:{side}`",
                    came=f"{list(counts)} for a tensor of rank {rank}",
                    expected=f"{rank} numbers from 0 up",
                )
            sides.append(counts)
        return list(zip(*sides, strict=True))

    def _length(
        self, length: Dimension, width: tuple[int, int], x: TensorType, attributes: Attributes
    ) -> Dimension:
        if width == (0, 0):
            return length
        if isinstance(length, Batch):
            fail_batch(
                "`pad` would lengthen the batch by a fixed number of records",
                came=f"{width[0]} before and {width[1]} after, of {format_shape(x.shape)}",
                help="pad another axis",
            )
        least = {"constant": 0, "edge": 1, "reflect": max(width) + 1}[attributes["mode"]]
        if length < least:
            fail_value(
                f"there is too little to pad by `:{attributes['mode']}`",
                came=f"{width[0]} before and {width[1]} after an axis of length {length}",
                expected=f"a length of {least} or more",
            )
        return length + sum(width)

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x, mode = inputs[0], attributes["mode"]
        widths = self._widths(x.ndim, attributes)
        if mode != "constant":
            return [np.pad(x, widths, mode=mode) if widths else x]
        shape = [before + d + after for d, (before, after) in zip(x.shape, widths, strict=True)]
        result = np.full(shape, attributes["value"], x.dtype)
        result[tuple(slice(b, b + d) for d, (b, _) in zip(x.shape, widths, strict=True))] = x
        return [result]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        x, mode = inputs[0], attributes["mode"]
        widths = self._widths(x.type.rank, attributes)
        if not any(map(any, widths)):
            return [x.name]
        counts = [before for before, _ in widths] + [after for _, after in widths]
        constant = mode == "constant"
        value = onnx.constant(fitting(self.name, attributes["value"], x.dtype)) if constant else ""
        return [onnx.add("Pad", x.name, onnx.ints(counts), value, mode=mode)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        widths = self._widths(inputs[0].rank, attributes)
        return [WHOLE if any(widths[axis]) else Apart(axis)]


@operation
class Tile(Operation):
    """The whole tensor again and again along each axis.

    As `numpy.tile`, with a number for each axis.

    ONNX: Tile; on bf16 through f32, exactly.
    """

    name = "tile"
    family = "shape"
    signature = signature(Operand("x"), Attribute("repeats", Kind.INTEGERS, keyword=False))
    constraints = ("`repeats` has a number for each axis, 0 or more.",)
    example = ("(tile (tensor (list 1 2)) 2)", "[1 2 1 2]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, repeats = inputs[0], attributes["repeats"]
        if len(repeats) != x.rank or not all(0 <= n <= MAXIMUM_ELEMENTS for n in repeats):
            fail_value(
                "`tile` needs a number for each axis",
                came=f"{list(repeats)} for {format_shape(x.shape)}",
                expected=f"{x.rank} numbers from 0 to {MAXIMUM_ELEMENTS:,}",
            )
        shape: list[Dimension] = []
        for length, count in zip(x.shape, repeats, strict=True):
            product = multiply(length, count)
            assert product is not None
            shape.append(product)
        return [x.with_shape(shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [np.tile(inputs[0], attributes["repeats"])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        repeats = attributes["repeats"]
        if all(count == 1 for count in repeats):
            return [inputs[0].name]
        return [onnx.add("Tile", inputs[0].name, onnx.ints(repeats))]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [Apart(axis) if attributes["repeats"][axis] == 1 else WHOLE]
