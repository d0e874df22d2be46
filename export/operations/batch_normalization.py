"""Normalisation of channels by statistics that were gathered while training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import FLOATS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.operation import Apart, Fate, Operation, Rows, operation
from sexpgpu.export.operations.rules import fail_shape, fail_value, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature

#: The operands that have one number a channel.
_VECTORS = ("scale", "bias", "mean", "variance")


@operation
class BatchNormalize(Operation):
    """(x - mean) / √(variance + epsilon) · scale + bias, each of them one number a channel.

    `x` is [batch, channels, …], the others [channels].  The mean and the variance are read, as they
    are when a model is used; nothing is computed over the batch.  It is computed as x · f + (bias -
    mean · f) with f = scale / √(variance + epsilon), as runtimes do, who multiply a convolution's
    kernel by f beforehand.  In bf16 all is computed in f32 and rounded once.  Ioffe and Szegedy,
    "Batch normalization", 2015.

    ONNX: BatchNormalization; in f64 its steps, since epsilon is f32 there.
    """

    name = "batch-normalize"
    family = "normalization"
    signature = signature(
        Operand("x", FLOATS),
        *(Operand(name, FLOATS) for name in _VECTORS),
        Attribute("epsilon", Kind.NUMBER, 1e-5),
    )
    constraints = (
        "`x` has at least two axes, and the second is not the batch.",
        "The other tensors are [channels].",
        "`epsilon` is a finite number, at least 0.",
    )
    example = (
        "(let (one (tensor (list 1.0)) x (tensor (list (list 1.0) (list 3.0))))\n"
        "  (batch-normalize x one one one (tensor (list 4.0)) :epsilon 0.0))",
        "[[1.0] [2.0]]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, *vectors = inputs
        if x.rank < 2:
            fail_shape(
                "`batch-normalize` takes a tensor [batch, channels, …]",
                came=str(x),
                expected="at least two axes",
            )
        channels = known(self.name, "the channels", x.shape[1])
        for name, vector in zip(_VECTORS, vectors, strict=True):
            if vector.shape != (channels,):
                fail_shape(
                    f"`{name}` of `batch-normalize` is not one number a channel",
                    came=f"{vector}, for {x}",
                    expected=f"[{channels}]",
                )
        if not 0 <= attributes["epsilon"] < np.inf:
            fail_value(
                "`epsilon` of `batch-normalize` is out of range",
                came=str(attributes["epsilon"]),
                expected="a finite number, at least 0",
            )
        return [x]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        wide = np.result_type(inputs[0].dtype, np.float32)
        x, scale, bias, mean, variance = (array.astype(wide, copy=False) for array in inputs)
        factor = scale / np.sqrt(variance + wide.type(attributes["epsilon"]))
        offset = bias - mean * factor
        column = (-1, *[1] * (x.ndim - 2))
        y = np.asarray(x * factor.reshape(column))
        y += offset.reshape(column)
        return [y.astype(inputs[0].dtype, copy=False)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        x, epsilon = inputs[0], float(attributes["epsilon"])
        if 0 in x.shape:
            return [onnx.add("Identity", x.name)]
        if x.dtype is not DType.F64:
            names = [value.name for value in inputs]
            return [onnx.add("BatchNormalization", *names, epsilon=epsilon)]
        scale, bias, mean, variance = (Term.of(onnx, value) for value in inputs[1:])
        factor = scale / (variance + epsilon).apply("Sqrt")
        offset = bias - mean * factor
        column = Term(onnx, onnx.ints([-1, *[1] * (x.type.rank - 2)]), DType.I64)
        factor, offset = (term.apply("Reshape", column) for term in (factor, offset))
        return [(Term.of(onnx, x) * factor + offset).name]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [Apart(1 if operand else axis)]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        # The channels of one record need not be those of another.
        return None if rows.axis == 1 else super().restrict(rows, attributes)
