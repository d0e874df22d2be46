"""Sorting along an axis; the order is that of `order`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import NUMBERS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.order import AlongOrder, comparable, lower_comparable
from sexpgpu.export.operations.rules import fail_value, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


class Sorted(AlongOrder):
    """Puts the elements along an axis into order."""

    def positions(self, x: Array, axis: int, *, descending: bool) -> Array:
        """From which position each element of the sorted axis comes."""
        key = comparable(x)
        if descending:
            # ~x is -x - 1, which unlike -x every whole number has.
            key = ~key if key.dtype.kind == "i" else -key
        return np.argsort(key, axis=axis, kind="stable")

    def lower_positions(
        self, onnx: Lowering, x: OnnxValue, count: str, axis: int, *, descending: bool
    ) -> tuple[str, str]:
        """The first `count` elements in order, and their positions in i64."""
        if 0 in x.shape:
            # ONNX Runtime 1.30 divides by the number of rows.
            none = onnx.add("Slice", x.name, onnx.ints([0]), count, onnx.ints([axis]))
            return none, onnx.cast(none, DType.I64)
        key = lower_comparable(onnx, x)
        values, positions = onnx.add(
            "TopK", key, count, outputs=2, axis=axis, largest=int(descending), sorted=1
        )
        if x.dtype.is_float:
            values = onnx.add("GatherElements", x.name, positions, axis=axis)
        return values, positions


class Sorting(Sorted):
    """Sorts a whole axis."""

    signature = signature(
        Operand("x", NUMBERS),
        Attribute("axis", Kind.INTEGER, -1),
        Attribute("descending", Kind.BOOLEAN, False),
    )
    constraints = ("`x` has the axis, of 2^31 - 1 elements at most.",)

    def lower_sorted(self, onnx: Lowering, x: OnnxValue, attributes: Attributes) -> tuple[str, str]:
        axis = attributes["axis"] % x.type.rank
        count = onnx.shape([x.shape[axis]])
        descending = attributes["descending"]
        return self.lower_positions(onnx, x, count, axis, descending=descending)


@operation
class Sort(Sorting):
    """The elements along an axis in order; NaN last, or first where `:descending`.

    As `numpy.sort`, stable either way.

    ONNX: TopK of all elements; floats are gathered by its positions.  Slice where there are none.
    """

    name = "sort"
    example = ("(sort (tensor (list 3 1 2)) :descending true)", "[3 2 1]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        self.axis_of(inputs[0], attributes)
        return [inputs[0]]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x, axis = inputs[0], attributes["axis"]
        order = self.positions(x, axis, descending=attributes["descending"])
        return [np.take_along_axis(x, order, axis)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [self.lower_sorted(onnx, inputs[0], attributes)[0]]


@operation
class Argsort(Sorting):
    """The positions from which the elements of `sort` come.

    As `numpy.argsort`, stable either way.

    ONNX: the positions of TopK.
    """

    name = "argsort"
    example = ("(argsort (tensor (list 3 1 2)))", "[1 2 0]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        self.axis_of(inputs[0], attributes)
        return [inputs[0].with_dtype(DType.I32)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        order = self.positions(inputs[0], attributes["axis"], descending=attributes["descending"])
        return [order.astype(np.int32)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [onnx.cast(self.lower_sorted(onnx, inputs[0], attributes)[1], DType.I32)]


@operation
class TopK(Sorted):
    """The k largest elements along an axis, the largest first, and their positions: two results.

    ONNX: TopK; floats are gathered by its positions.  Slice where `x` has no elements.
    """

    name = "top-k"
    signature = signature(
        Operand("x", NUMBERS),
        Attribute("k", Kind.INTEGER, keyword=False),
        Attribute("axis", Kind.INTEGER, -1),
    )
    constraints = (
        "`x` has the axis, of 2^31 - 1 elements at most.",
        "k is 0 to the length of the axis.",
        "The axis is not the batch.",
    )
    example = ("(top-k (tensor (list 1 4 3)) 2)", "(list [4 3] [1 2])")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, k = inputs[0], attributes["k"]
        axis = self.axis_of(x, attributes)
        length = known(self.name, "how long the axis is", x.shape[axis])
        if not 0 <= k <= length:
            fail_value(
                "`top-k` is asked for more elements than there are",
                came=f"{k} of an axis of length {length}",
                expected=f"0 to {length}",
            )
        values = x.with_shape([*x.shape[:axis], k, *x.shape[axis + 1 :]])
        return [values, values.with_dtype(DType.I32)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x, axis = inputs[0], attributes["axis"]
        order = self.positions(x, axis, descending=True)
        first = np.take(order, range(attributes["k"]), axis)
        return [np.take_along_axis(x, first, axis), first.astype(np.int32)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axis, count = attributes["axis"] % inputs[0].type.rank, onnx.ints([attributes["k"]])
        values, positions = self.lower_positions(onnx, inputs[0], count, axis, descending=True)
        return [values, onnx.cast(positions, DType.I32)]
