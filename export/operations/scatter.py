"""The operation that adds to a tensor at places that indices name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import (
    INTEGERS,
    NUMBERS,
    Array,
    Dimension,
    DType,
    TensorType,
    format_shape,
    multiply,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.index import ByCoordinates
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Rows, operation
from sexpgpu.export.operations.rules import fail_batch, fail_shape, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class ScatterAdd(ByCoordinates):
    """`x` with the updates added at the places that the indices name by their coordinates.

    The inverse of `gather-nd`: updates have the shape of what it gathers, and those for one place
    are all added, in order. bf16 is added in f32 and rounded once; integers wrap around.

    ONNX: ScatterElements with `reduction` add, over the places counted in row-major order.
    """

    name = "scatter-add"
    signature = signature(
        Operand("x", NUMBERS),
        Operand("indices", INTEGERS, group="I"),
        Operand("updates", NUMBERS),
        Attribute("batch-dims", Kind.INTEGER, 0),
    )
    constraints = (
        "`:batch-dims` is 0 or more, less than both ranks, and those axes are equal.",
        "The last axis of the indices is 1 to as many as `x` has axes after the batch dimensions.",
        "The updates have the shape that `gather-nd` gives.",
        "Coordinates do not run along the batch.",
        "Coordinates are in the range of their axis.",
    )
    example = (
        "(scatter-add (tensor (list 1 2 3)) (tensor (list (list 0) (list -1) (list 0)))"
        " (tensor (list 10 20 30)))",
        "[41 2 23]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, indices, updates = inputs
        shape = self.places(x, indices, attributes).shape
        if updates.shape != shape:
            fail_shape(
                "the updates of `scatter-add` have another shape than what is updated",
                came=format_shape(updates.shape),
                expected=format_shape(shape),
            )
        for axis in self.indexed(x, indices, attributes):
            known(self.name, "how long the axes are that it indexes", x.shape[axis])
        self._counts(x, indices, attributes)
        return [x]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x, indices, updates = inputs
        wide = np.dtype(np.float32) if DType.of(x) is DType.BF16 else x.dtype
        result = x.astype(wide)
        np.add.at(result, self.select(x, indices, attributes), updates.astype(wide))
        return [result.astype(x.dtype)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        x, indices, updates = inputs
        shared, places, count, part = self._counts(x.type, indices.type, attributes)
        index = self._row_major(onnx, x, indices, attributes)
        index = onnx.reshape(index, [shared, places, 1])
        if isinstance(part, int):
            # Not Expand, for which a shape has to be computed: TVM counts no batches there.
            index = onnx.add("Tile", index, onnx.ints([1, 1, part])) if part != 1 else index
        else:
            index = onnx.add("Expand", index, onnx.shape([shared, places, part]))
        added = onnx.add(
            "ScatterElements",
            onnx.reshape(x.name, [shared, count, part]),
            index,
            onnx.reshape(updates.name, [shared, places, part]),
            axis=1,
            reduction="add",
        )
        return [onnx.reshape(added, x.shape)]

    def _counts(
        self, x: TensorType, indices: TensorType, attributes: Attributes
    ) -> tuple[Dimension, Dimension, Dimension, Dimension]:
        """How many batches there are, indices in each, places, and elements at a place."""
        axes = self.indexed(x, indices, attributes)
        return (
            _product(x.shape[: axes.start]),
            _product(indices.shape[axes.start : -1]),
            _product([x.shape[axis] for axis in axes]),
            _product(x.shape[axes.stop :]),
        )

    def _row_major(
        self, onnx: Lowering, x: OnnxValue, indices: OnnxValue, attributes: Attributes
    ) -> str:
        """Each place's number in row-major order; one past the last where it is out of range."""
        name = indices.name if indices.dtype is DType.I64 else onnx.cast(indices.name, DType.I64)
        axes = self.indexed(x.type, indices.type, attributes)
        if len(axes) == 1:
            return name
        sizes = [known(self.name, "the axes", x.shape[axis]) for axis in axes]
        strides = [int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i in range(len(sizes))]
        zero, lengths = onnx.scalar(0, DType.I64), onnx.ints(sizes)
        negative = onnx.add("Less", name, zero)
        name = onnx.add("Where", negative, onnx.add("Add", name, lengths), name)
        below, above = onnx.add("Less", name, zero), onnx.add("GreaterOrEqual", name, lengths)
        outside = onnx.cast(onnx.add("Or", below, above), DType.F32)
        outside = onnx.cast(onnx.add("ReduceMax", outside, onnx.ints([-1]), keepdims=0), DType.BOOL)
        number = onnx.add("Mul", name, onnx.ints(strides))
        number = onnx.add("ReduceSum", number, onnx.ints([-1]), keepdims=0)
        past = onnx.scalar(int(np.prod(sizes, dtype=np.int64)), DType.I64)
        return onnx.add("Where", outside, past, number)

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        x, indices, _ = inputs
        axes = self.indexed(x, indices, attributes)
        if operand == 0 or axis < axes.start:
            return [Apart(axis)]
        if operand == 1 or axis < indices.rank - 1:
            return [WHOLE]
        return [Apart(axis - (indices.rank - 1) + axes.stop)]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        x, indices = rows.inputs[0].type, rows.inputs[1].type
        # Updates for any position may be for one of the rows.
        if rows.axis in self.indexed(x, indices, attributes):
            return None
        return super().restrict(rows, attributes)


def _product(dimensions: Sequence[Dimension]) -> Dimension:
    product: Dimension | None = 1
    for dimension in dimensions:
        product = None if product is None else multiply(product, dimension)
    if product is None:
        fail_batch("`scatter-add` cannot join two axes of the batch", came=format_shape(dimensions))
    return product
