"""Elementwise arithmetic and functions: one element of the result reads one of each operand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, NUMBERS, Array, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import Fate, Operation, operation
from sexpgpu.export.operations.rules import broadcast, elementwise_fate
from sexpgpu.export.operations.signature import Operand, Signature, signature


class Elementwise(Operation):
    """Operands broadcast; the result has their dtype."""

    family = "elementwise"
    elementwise = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        shape = broadcast(self.name, [type.shape for type in inputs])
        return [TensorType(inputs[0].dtype, shape)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [elementwise_fate(inputs[operand], axis, results[0])]


UNARY_FLOAT: Signature = signature(Operand("x", FLOATS))
BINARY_NUMBER: Signature = signature(Operand("a", NUMBERS), Operand("b", NUMBERS))


@operation
class Add(Elementwise):
    """The sum; integers wrap around."""

    name = "+"
    signature = BINARY_NUMBER
    example = ("(+ (tensor (list 1.0 2.0)) 10)", "[11.0 12.0]")

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [np.asarray(inputs[0] + inputs[1])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [onnx.add("Add", inputs[0].name, inputs[1].name)]


@operation
class Exp(Elementwise):
    """e to the power x."""

    name = "exp"
    signature = UNARY_FLOAT
    example = ("(exp (tensor (list 0.0)))", "[1.0]")

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [np.exp(inputs[0])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [onnx.add("Exp", inputs[0].name)]
