"""What elementwise operations share: one element of the result reads one of each operand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, NUMBERS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.operation import Fate, Operation
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


class ElementwiseFormula(Elementwise):
    """An elementwise operation that is two formulas: one in NumPy, one in ONNX."""

    @abstractmethod
    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        """The meaning in NumPy; bf16 operands come as f32."""

    @abstractmethod
    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        """The ONNX form; bf16 operands come as f32."""

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        """bf16 is computed in f32 and rounded once, to nearest, ties to even."""
        arrays = [widened(array) for array in inputs]
        result = np.asarray(self.compute(arrays, attributes))
        if result.dtype == np.float32 and any(a.dtype == BF16 for a in inputs):
            result = result.astype(BF16)
        return [result]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [self.formula([Term.of(onnx, value) for value in inputs], attributes).name]


class NativeFunction(ElementwiseFormula):
    """A NumPy function that is one ONNX operator, on all of its dtypes."""

    function: ClassVar[np.ufunc]
    operator: ClassVar[str]

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(self.function(*arrays))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return terms[0].apply(self.operator, *terms[1:])


BF16 = DType.BF16.numpy

UNARY_FLOAT: Signature = signature(Operand("x", FLOATS))
UNARY_NUMBER: Signature = signature(Operand("x", NUMBERS))
BINARY_NUMBER: Signature = signature(Operand("a", NUMBERS), Operand("b", NUMBERS))


def widened(array: Array) -> Array:
    """The array in f32 where it is bf16."""
    return array.astype(np.float32) if array.dtype == BF16 else array
