"""The choice between two tensors, element for element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import ANY, BOOLEANS, Array, DType, TensorType
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.elementwise import ElementwiseFormula
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.signature import Operand, signature


@operation
class Where(ElementwiseFormula):
    """a where the condition is true, b elsewhere; what is not chosen is not looked at.

    ONNX: Where; And, Or over bool, of which ONNX Runtime has no Where.
    """

    name = "where"
    signature = signature(
        Operand("condition", BOOLEANS, group="condition"), Operand("a", ANY), Operand("b", ANY)
    )
    example = (
        "(where (tensor (list true false)) (tensor (list 1.0 2.0)) (tensor (list 3.0 4.0)))",
        "[1.0 4.0]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        return [super().infer(inputs, attributes)[0].with_dtype(inputs[1].dtype)]

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.where(*arrays)

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        condition, a, b = terms
        if a.dtype is DType.BOOL:
            return (condition & a) | (~condition & b)
        return condition.where(a, b)
