"""The operation that puts the same elements, in their order, into another shape."""

from __future__ import annotations

from collections.abc import Sequence

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
    fail_batch,
    fail_shape,
    fail_value,
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
        shape = rows.shape
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
