"""Operations that make a tensor out of numbers, sizes or indices."""

from __future__ import annotations

from collections.abc import Sequence

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Fate, Operation, operation
from sexpgpu.export.operations.signature import Attribute, Kind, signature


class Creation(Operation):
    """Has no operands, so that no axis comes in."""

    family = "creation"

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [WHOLE]


@operation
class Constant(Creation):
    """A tensor whose elements stand in the program: what `(tensor …)` makes.

    ONNX: an initializer; equal ones are stored once.
    """

    name = "constant"
    signature = signature(Attribute("value", Kind.ARRAY, keyword=False))
    example = ("(tensor (list (list 1.0 2.0) (list 3.0 4.0)))", "[[1.0 2.0] [3.0 4.0]]")
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        value: Array = attributes["value"]
        return [TensorType(DType.of(value), value.shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [attributes["value"]]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [onnx.constant(attributes["value"])]
