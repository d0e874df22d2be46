"""Operations that add, take away and stretch axes of length 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import (
    Array,
    Shape,
    TensorType,
    format_shape,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, Rows, operation
from sexpgpu.export.operations.rules import (
    elementwise_fate,
    fail_shape,
    fail_value,
    normalize_axes,
)
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class BroadcastTo(Operation):
    """Axes of length 1 and missing leading axes are repeated to the shape.

    As `numpy.broadcast_to`.

    ONNX: Expand; on bf16 through f32, exactly.
    """

    name = "broadcast-to"
    family = "shape"
    signature = signature(Operand("x"), Attribute("shape", Kind.SHAPE, keyword=False))
    constraints = (
        "`x` broadcasts to the shape: aligned at the end, its dimensions are equal or 1.",
        "No dimension of the shape is negative.",
    )
    example = ("(broadcast-to (tensor (list 1 2)) (list 2 2))", "[[1 2] [1 2]]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        shape: Shape = attributes["shape"]
        if any(isinstance(d, int) and d < 0 for d in shape):
            fail_value(
                "`broadcast-to` is given a negative dimension",
                came=format_shape(shape),
                expected="dimensions from 0 up",
            )
        own = inputs[0].shape
        tail = shape[len(shape) - len(own) :]
        if len(own) > len(shape) or any(a not in (1, b) for a, b in zip(own, tail, strict=True)):
            fail_shape(
                "the tensor does not broadcast to the shape",
                came=f"{format_shape(own)} to {format_shape(shape)}",
                expected="dimensions that are equal or 1 in the tensor, aligned at the end",
            )
        return [inputs[0].with_shape(shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [np.broadcast_to(inputs[0], attributes["shape"])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        # ONNX Runtime removes an Expand of [0, 1] to [0, 0]; without elements any value will do.
        empty = 0 in results[0].shape
        name = onnx.scalar(0, inputs[0].dtype) if empty else inputs[0].name
        return [onnx.add("Expand", name, onnx.shape(results[0].shape))]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [elementwise_fate(inputs[operand], axis, results[0])]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        if rows.causal:
            return None
        return rows.inputs, {**attributes, "shape": rows.shape}


@operation
class Squeeze(Operation):
    """Axes of length 1 are taken away.

    As `numpy.squeeze`, but the axes must be named: a batch of one has length 1 too.

    ONNX: Squeeze.
    """

    name = "squeeze"
    family = "shape"
    signature = signature(Operand("x"), Attribute("axis", Kind.INTEGERS))
    constraints = ("Every axis that is named has length 1.",)
    example = ("(squeeze (tensor (list (list 1 2))) :axis 0)", "[1 2]")
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        shape = inputs[0].shape
        axes = normalize_axes(self.name, attributes["axis"], len(shape))
        for axis in axes:
            if shape[axis] != 1:
                fail_shape(
                    "`squeeze` takes away axes of length 1",
                    came=f"axis {axis} of {format_shape(shape)}",
                    help="`reshape` joins axes of other lengths",
                )
        return [inputs[0].with_shape([d for a, d in enumerate(shape) if a not in axes])]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [np.squeeze(inputs[0], axis=attributes["axis"])]

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
        return [onnx.add("Squeeze", inputs[0].name, onnx.ints(axes))]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        axes = normalize_axes(self.name, attributes["axis"], inputs[0].rank)
        if axis in axes:
            return [WHOLE]
        return [Apart(axis - sum(gone < axis for gone in axes))]


@operation
class Unsqueeze(Operation):
    """New axes of length 1, at these places of the result.

    As `numpy.expand_dims`.

    ONNX: Unsqueeze.
    """

    name = "unsqueeze"
    family = "shape"
    signature = signature(Operand("x"), Attribute("axis", Kind.INTEGERS, keyword=False))
    constraints = ("The axes are different axes of the result.",)
    example = ("(unsqueeze (tensor (list 1 2)) 0)", "[[1 2]]")
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        new = self._new(inputs[0].rank, attributes)
        old = iter(inputs[0].shape)
        rank = inputs[0].rank + len(new)
        return [inputs[0].with_shape([1 if a in new else next(old) for a in range(rank)])]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [np.expand_dims(inputs[0], attributes["axis"])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        new = self._new(inputs[0].type.rank, attributes)
        if not new:
            return [inputs[0].name]
        return [onnx.add("Unsqueeze", inputs[0].name, onnx.ints(new))]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        new = self._new(inputs[0].rank, attributes)
        return [Apart([a for a in range(results[0].rank) if a not in new][axis])]

    def _new(self, rank: int, attributes: Attributes) -> tuple[int, ...]:
        axes = attributes["axis"]
        return normalize_axes(self.name, axes, rank + len(axes))
