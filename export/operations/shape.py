"""Operations that give the same elements another shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import (
    Array,
    Batch,
    Dimension,
    Shape,
    TensorType,
    format_shape,
    split_elements,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, Rows, operation
from sexpgpu.export.operations.rules import (
    elementwise_fate,
    fail_batch,
    fail_shape,
    fail_value,
    normalize_axes,
    normalize_axis,
)
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class Reshape(Operation):
    """The elements in row-major order under another shape; one dimension may be -1, what is left.

    As `numpy.reshape`. The batch may be multiplied: `[batch, 16, 8]` as `(list -1 8)` is
    `[16*batch, 8]`.

    ONNX: Reshape.
    """

    name = "reshape"
    family = "shape"
    signature = signature(Operand("x"), Attribute("shape", Kind.SHAPE, keyword=False))
    constraints = (
        "At most one dimension of the shape is -1; none is less.",
        "The shape has as many elements as `x`, for any batch.",
        "With a -1, the other dimensions divide the number of elements and none is 0.",
    )
    example = ("(reshape (tensor (list 1 2 3 4 5 6)) (list 2 -1))", "[[1 2 3] [4 5 6]]")
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        return [inputs[0].with_shape(_resolve(inputs[0].shape, attributes["shape"]))]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [inputs[0].reshape(attributes["shape"])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [onnx.reshape(inputs[0].name, results[0].shape)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        # In row-major order an axis stays where as many elements stand before it and it is as
        # long. Of the batch's axis a record's block may change its length.
        shape, target = inputs[operand].shape, results[0].shape
        before, dimension = split_elements(shape[:axis]), shape[axis]
        for index, other in enumerate(target):
            both_batch = isinstance(dimension, Batch) and isinstance(other, Batch)
            if (both_batch or dimension == other) and split_elements(target[:index]) == before:
                return [Apart(index)]
        return [WHOLE]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        shape = _with_count(rows)
        fits = split_elements(rows.inputs[0].type.shape) == split_elements(shape)
        if rows.causal or rows.input_axes[0] is None or not fits:
            return None
        return rows.inputs, {**attributes, "shape": shape}


def _resolve(shape: Shape, wanted: Shape) -> Shape:
    """The wanted shape with its -1 worked out."""
    unknown = [index for index, dimension in enumerate(wanted) if dimension == -1]
    negative = any(isinstance(d, int) and d < -1 for d in wanted)
    if len(unknown) > 1 or negative:
        fail_value(
            "`reshape` is given a shape that is none",
            came=format_shape(wanted),
            expected="dimensions from 0 up, and at most one -1",
        )
    count, power = split_elements(shape)
    known_count, known_power = split_elements([d for d in wanted if d != -1])
    if not unknown:
        if known_count != count or (count and known_power != power):
            _fail_elements(shape, wanted)
        return wanted
    if known_count == 0 or count % known_count or known_power > power:
        _fail_elements(shape, wanted)
    if power - known_power > 1:
        fail_batch(
            "`reshape` would make a dimension of batch times batch",
            came=f"{format_shape(shape)} as {format_shape(wanted)}",
            help="keep the batch as an axis of its own",
        )
    left: Dimension = count // known_count
    if power > known_power and left:
        left = Batch(count // known_count)
    return tuple(left if d == -1 else d for d in wanted)


def _fail_elements(shape: Shape, wanted: Shape) -> None:
    fail_shape(
        "`reshape` must keep every element",
        came=f"{format_shape(shape)} as {format_shape(wanted)}",
        expected=f"a shape of {_show_count(shape)} elements",
    )


def _show_count(shape: Shape) -> str:
    count, power = split_elements(shape)
    return "*".join([str(count), *["batch"] * (power if count else 0)])


def _with_count(rows: Rows) -> Shape:
    """The shape of the result when only `rows.count` positions of the axis are left."""
    shape = list(rows.result.shape)
    shape[rows.axis] = rows.count
    return tuple(shape)


class Permutation(Operation):
    """Axes change places; `order` says which axis of `x` each axis of the result is."""

    family = "shape"
    moves_data = True

    def order(self, rank: int, attributes: Attributes) -> tuple[int, ...]:
        raise NotImplementedError

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        shape = inputs[0].shape
        return [inputs[0].with_shape([shape[a] for a in self.order(len(shape), attributes)])]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [inputs[0].transpose(self.order(inputs[0].ndim, attributes))]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        order = self.order(inputs[0].type.rank, attributes)
        if order == tuple(range(len(order))):
            return [inputs[0].name]
        return [onnx.add("Transpose", inputs[0].name, perm=list(order))]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [Apart(self.order(inputs[0].rank, attributes).index(axis))]


@operation
class Transpose(Permutation):
    """Two axes change places: the last two, or those that `:axes` names.

    As `numpy.swapaxes`.

    ONNX: Transpose.
    """

    name = "transpose"
    signature = signature(Operand("x"), Attribute("axes", Kind.INTEGERS, None))
    constraints = (
        "Without `:axes`, `x` has two axes or more.",
        "`:axes` are two axes of `x`.",
    )
    example = ("(transpose (tensor (list (list 1 2) (list 3 4))))", "[[1 3] [2 4]]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        axes = attributes["axes"]
        if axes is None and inputs[0].rank < 2:
            fail_shape(
                "`transpose` swaps the last two axes",
                came=str(inputs[0]),
                expected="a tensor of two axes or more",
            )
        if axes is not None and len(axes) != 2:
            fail_value(
                "`transpose` swaps two axes",
                came=f"{len(axes)} axes",
                expected="two axes",
                help="`permute` puts all axes into an order",
            )
        return super().infer(inputs, attributes)

    def order(self, rank: int, attributes: Attributes) -> tuple[int, ...]:
        a, b = (
            normalize_axis(self.name, axis, rank)
            for axis in ((-2, -1) if attributes["axes"] is None else attributes["axes"])
        )
        return tuple({a: b, b: a}.get(axis, axis) for axis in range(rank))


@operation
class Permute(Permutation):
    """The axes in another order: axis i of the result is axis `axes[i]` of `x`.

    As `numpy.transpose` with axes.

    ONNX: Transpose.
    """

    name = "permute"
    signature = signature(Operand("x"), Attribute("axes", Kind.INTEGERS, keyword=False))
    constraints = ("`axes` names every axis of `x` once.",)
    example = (
        "(permute (tensor (list (list 1 2 3) (list 4 5 6))) (list 1 0))",
        "[[1 4] [2 5] [3 6]]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        rank, axes = inputs[0].rank, attributes["axes"]
        if normalize_axes(self.name, axes, rank) != tuple(range(rank)):
            fail_value(
                "`permute` needs every axis once",
                came=str(list(axes)),
                expected=f"an order of the axes 0 to {rank - 1}",
                help="`transpose` swaps two axes",
            )
        return super().infer(inputs, attributes)

    def order(self, rank: int, attributes: Attributes) -> tuple[int, ...]:
        return tuple(axis % rank for axis in attributes["axes"])


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
        return rows.inputs, {**attributes, "shape": _with_count(rows)}


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
