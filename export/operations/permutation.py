"""Operations that put axes into another order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import (
    Array,
    TensorType,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import (
    fail_shape,
    fail_value,
    normalize_axes,
    normalize_axis,
)
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


class Permutation(Operation):
    """Axes change places; `order` says which axis of `x` each axis of the result is."""

    family = "shape"
    moves_data = True

    @abstractmethod
    def order(self, rank: int, attributes: Attributes) -> tuple[int, ...]:
        """The axes of `x` in the order of the result's."""

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
