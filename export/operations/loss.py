"""Losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import (
    FLOATS,
    INTEGERS,
    Array,
    Batch,
    DType,
    TensorType,
    format_shape,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.normalization import log_softmax
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import fail_shape, fail_value
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class CrossEntropy(Operation):
    """-log softmax(logits)[target], for each target: the loss of a classifier.

    Logits are [..., classes] and targets [...].  With `smoothing` s the target has the probability
    1 - s, and s is shared by all classes: (1 - s) · loss + s · mean(-log softmax(logits))
    (Szegedy et al. 2016).  A target equal to `ignore` costs 0; any other that is no class costs
    NaN.  In bf16 all is computed in f32 and rounded once.  The classes may be the records of the
    batch, of which `(iota (dim logits 0))` are the own ones: a contrastive loss.

    ONNX: LogSoftmax, GatherElements and Where.
    """

    name = "cross-entropy"
    family = "loss"
    signature = signature(
        Operand("logits", FLOATS),
        Operand("targets", INTEGERS, group="targets"),
        Attribute("ignore", Kind.INTEGER, None),
        Attribute("smoothing", Kind.NUMBER, 0.0),
    )
    constraints = (
        "`logits` has one axis more than `targets`, its last, of at least one class; the others "
        "are equal.",
        "`smoothing` is from 0 to 1.",
    )
    example = (
        "(exp (neg (cross-entropy (tensor (list (list 0.0 0.0))) (tensor (list 1)))))",
        "[0.5]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        logits, targets = inputs
        if not logits.rank or logits.shape[:-1] != targets.shape or logits.shape[-1] == 0:
            fail_shape(
                "the targets of `cross-entropy` are not one for each row of logits",
                came=f"logits {format_shape(logits.shape)}, targets {format_shape(targets.shape)}",
                expected="[..., classes] and [...]",
            )
        if not 0 <= attributes["smoothing"] <= 1:
            fail_value(
                "`smoothing` of `cross-entropy` is out of range",
                came=str(attributes["smoothing"]),
                expected="0 to 1",
            )
        return [logits.with_shape(targets.shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        logits, targets = inputs
        x = logits.astype(np.float32) if DType.of(logits) is DType.BF16 else logits
        centered = x - np.max(x, axis=-1, keepdims=True)
        scores = centered - np.log(np.sum(np.exp(centered), axis=-1, keepdims=True))
        classes = x.shape[-1]
        inside = np.clip(targets, 0, classes - 1).astype(np.int64)
        loss = -np.take_along_axis(scores, inside[..., None], axis=-1)[..., 0]
        smoothing = x.dtype.type(attributes["smoothing"])
        if smoothing:
            loss = (1 - smoothing) * loss - smoothing * np.mean(scores, axis=-1)
        loss = np.where((targets >= 0) & (targets < classes), loss, np.nan)
        if attributes["ignore"] is not None:
            loss = np.where(targets.astype(np.int64) == attributes["ignore"], 0, loss)
        return [loss.astype(logits.dtype)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        logits, dtype = inputs[0], inputs[0].dtype
        if 0 in logits.shape:
            return [onnx.add("Expand", onnx.scalar(0, dtype), onnx.shape(results[0].shape))]
        classes = logits.shape[-1]
        targets = onnx.cast(inputs[1].name, DType.I64)
        first, last = onnx.scalar(0, DType.I64), onnx.ints([-1])
        if isinstance(classes, Batch):
            after = onnx.add("Squeeze", onnx.shape([classes]), onnx.ints([0]))
            greatest = onnx.add("Sub", after, onnx.scalar(1, DType.I64))
        else:
            after = onnx.scalar(classes, DType.I64)
            greatest = onnx.scalar(classes - 1, DType.I64)
        inside = onnx.add("Clip", targets, first, greatest)
        scores = log_softmax(onnx, logits, -1)
        # onnx's reference takes no axis from the end here.
        axis = len(logits.shape) - 1
        picked = onnx.add("GatherElements", scores, onnx.add("Unsqueeze", inside, last), axis=axis)
        loss = onnx.add("Neg", onnx.add("Squeeze", picked, last))
        smoothing = float(dtype.numpy.type(attributes["smoothing"]))
        if smoothing:
            kept = dtype.numpy.type(1) - dtype.numpy.type(smoothing)
            mean = onnx.add("ReduceMean", scores, last, keepdims=0)
            shared = onnx.add("Mul", mean, onnx.scalar(smoothing, dtype))
            loss = onnx.add("Sub", onnx.add("Mul", loss, onnx.constant(kept)), shared)
        valid = onnx.add(
            "And",
            onnx.add("GreaterOrEqual", targets, first),
            onnx.add("Less", targets, after),
        )
        loss = onnx.add("Where", valid, loss, onnx.scalar(np.nan, dtype))
        if attributes["ignore"] is not None:
            ignored = onnx.add("Equal", targets, onnx.scalar(attributes["ignore"], DType.I64))
            loss = onnx.add("Where", ignored, onnx.scalar(0, dtype), loss)
        return [loss]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [Apart(axis) if axis < results[0].rank else WHOLE]
