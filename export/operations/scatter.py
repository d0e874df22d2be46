"""Operations that change a tensor at places that indices name."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

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


class Scatter(ByCoordinates):
    """Updates for the places that indices name by their coordinates."""

    #: What ONNX calls it.
    reduction: ClassVar[str]
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

    @abstractmethod
    def update(self, x: Array, places: Any, updates: Array) -> None:
        """Changes x, in NumPy; a place may be named several times."""

    def write(self, onnx: Lowering, x: OnnxValue, index: str, updates: str) -> str:
        """The ONNX form, of three tensors of the rank 3, along their second axis."""
        return onnx.add("ScatterElements", x.name, index, updates, axis=1, reduction=self.reduction)

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, indices, updates = inputs
        shape = self.places(x, indices, attributes).shape
        if updates.shape != shape:
            fail_shape(
                f"the updates of `{self.name}` have another shape than what is updated",
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
        self.update(result, self.select(x, indices, attributes), updates.astype(wide))
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
        made = self.write(
            onnx,
            OnnxValue(onnx.reshape(x.name, [shared, count, part]), x.type),
            index,
            onnx.reshape(updates.name, [shared, places, part]),
        )
        return [onnx.reshape(made, x.shape)]

    def _counts(
        self, x: TensorType, indices: TensorType, attributes: Attributes
    ) -> tuple[Dimension, Dimension, Dimension, Dimension]:
        """How many batches there are, indices in each, places, and elements at a place."""
        axes = self.indexed(x, indices, attributes)
        return (
            _product(self.name, x.shape[: axes.start]),
            _product(self.name, indices.shape[axes.start : -1]),
            _product(self.name, [x.shape[axis] for axis in axes]),
            _product(self.name, x.shape[axes.stop :]),
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


@operation
class ScatterAdd(Scatter):
    """`x` with the updates added at the places that the indices name by their coordinates.

    The inverse of `gather-nd`: updates have the shape of what it gathers, and those for one place
    are all added, in order. bf16 is added in f32 and rounded once; integers wrap around.

    ONNX: ScatterElements with `reduction` add, over the places counted in row-major order.
    """

    name = "scatter-add"
    reduction = "add"
    example = (
        "(scatter-add (tensor (list 1 2 3)) (tensor (list (list 0) (list -1) (list 0)))"
        " (tensor (list 10 20 30)))",
        "[41 2 23]",
    )

    def update(self, x: Array, places: Any, updates: Array) -> None:
        np.add.at(x, places, updates)


class ScatterExtreme(Scatter):
    """Writes the largest or the smallest, and NaN where there is one."""

    function: ClassVar[np.ufunc]

    def update(self, x: Array, places: Any, updates: Array) -> None:
        self.function.at(x, places, updates)

    def write(self, onnx: Lowering, x: OnnxValue, index: str, updates: str) -> str:
        made = super().write(onnx, x, index, updates)
        if not x.dtype.is_float:
            return made
        # Runtimes lose NaN: how many there are for each place is counted besides.
        marks = [onnx.cast(onnx.add("IsNaN", name), DType.F32) for name in (x.name, updates)]
        marked = onnx.add("ScatterElements", marks[0], index, marks[1], axis=1, reduction="add")
        none = onnx.add("Greater", marked, onnx.scalar(0, DType.F32))
        return onnx.add("Where", none, onnx.scalar(math.nan, x.dtype), made)


@operation
class ScatterMax(ScatterExtreme):
    """`x`, or the largest of the updates for a place where that is larger; NaN where one is.

    Indices and updates are those of `scatter-add`.

    ONNX: ScatterElements with `reduction` max, and Where, since runtimes lose NaN.
    """

    name = "scatter-max"
    reduction = "max"
    function = np.maximum
    example = (
        "(scatter-max (tensor (list 1 2 3)) (tensor (list (list 0) (list 1) (list 0)))"
        " (tensor (list 10 0 30)))",
        "[30 2 3]",
    )


@operation
class ScatterMin(ScatterExtreme):
    """`x`, or the smallest of the updates for a place where that is smaller; NaN where one is.

    Indices and updates are those of `scatter-add`.

    ONNX: ScatterElements with `reduction` min, and Where, since runtimes lose NaN.
    """

    name = "scatter-min"
    reduction = "min"
    function = np.minimum
    example = (
        "(scatter-min (tensor (list 1 2 3)) (tensor (list (list 0) (list 1) (list 0)))"
        " (tensor (list 10 0 -30)))",
        "[-30 0 3]",
    )


@operation
class ScatterSet(Scatter):
    """`x` with the updates in place of what stands there; the last of several for one place.

    Indices and updates are those of `scatter-add`.

    ONNX: ScatterElements, which leaves open which of several for one place stays; with ONNX Runtime
    it is the last.
    """

    name = "scatter-set"
    reduction = "none"
    signature = signature(
        Operand("x"),
        Operand("indices", INTEGERS, group="I"),
        Operand("updates"),
        Attribute("batch-dims", Kind.INTEGER, 0),
    )
    example = (
        "(scatter-set (tensor (list 1 2 3)) (tensor (list (list 0) (list -1)))"
        " (tensor (list 10 20)))",
        "[10 2 20]",
    )

    def update(self, x: Array, places: Any, updates: Array) -> None:
        x[places] = updates


def _product(name: str, dimensions: Sequence[Dimension]) -> Dimension:
    product: Dimension | None = 1
    for dimension in dimensions:
        product = None if product is None else multiply(product, dimension)
    if product is None:
        fail_batch(f"`{name}` cannot join two axes of the batch", came=format_shape(dimensions))
    return product
