"""The operation that adds up along an axis as it goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import NUMBERS, Array, Batch, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Causal, Fate, Operation, operation
from sexpgpu.export.operations.rules import normalize_axis
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class Cumsum(Operation):
    """At each position the sum of the elements up to it, as in `numpy.cumsum`.

    With `:exclusive` the element itself is left out, with `:reverse` the sum is of those from the
    position on. Integers wrap around; bf16 is added in f32 and rounded once.

    ONNX: CumSum.
    """

    name = "cumsum"
    family = "reduce"
    signature = signature(
        Operand("x", NUMBERS),
        Attribute("axis", Kind.INTEGER, -1),
        Attribute("exclusive", Kind.BOOLEAN, False),
        Attribute("reverse", Kind.BOOLEAN, False),
    )
    constraints = ("`x` has the axis.",)
    example = ("(cumsum (tensor (list 1 2 3)))", "[1 3 6]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        normalize_axis(self.name, attributes["axis"], inputs[0].rank)
        return [inputs[0]]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x, reverse = inputs[0], attributes["reverse"]
        wide = x.astype(np.float32) if DType.of(x) is DType.BF16 else x
        along = np.moveaxis(wide, attributes["axis"], 0)
        along = along[::-1] if reverse else along
        if attributes["exclusive"]:
            along = np.concatenate([np.zeros_like(along[:1]), along[:-1]])
        sums = np.cumsum(along, axis=0, dtype=wide.dtype)
        sums = sums[::-1] if reverse else sums
        return [np.moveaxis(sums, 0, attributes["axis"]).astype(x.dtype)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axis = onnx.scalar(attributes["axis"] % inputs[0].type.rank, DType.I64)
        exclusive, reverse = int(attributes["exclusive"]), int(attributes["reverse"])
        return [onnx.add("CumSum", inputs[0].name, axis, exclusive=exclusive, reverse=reverse)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        if axis != attributes["axis"] % inputs[0].rank:
            return [Apart(axis)]
        mixed = attributes["reverse"] or isinstance(inputs[0].shape[axis], Batch)
        return [WHOLE if mixed else Causal(axis)]
