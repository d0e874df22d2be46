"""Reductions of several steps: variance, logsumexp and norms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, Array, Batch, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.reduction import Reduction, reduced_size, reduction, with_nan
from sexpgpu.export.operations.rules import fail_value, normalize_axes
from sexpgpu.export.operations.signature import Attribute, Kind


@operation
class Variance(Reduction):
    """The mean squared distance from the mean, `sum((x - mean(x))^2) / (n - correction)`.

    As `numpy.var` with `ddof`: correction 0 is the variance of the elements themselves, 1 the
    unbiased estimate from a sample.

    ONNX: Sub of the ReduceMean, Mul by itself, ReduceMean, or ReduceSum and Div.
    """

    name = "variance"
    signature = reduction(FLOATS, Attribute("correction", Kind.INTEGER, 0))
    constraints = (
        "The axes are different axes of `x`.",
        "The correction is 0 or more and less than the number of elements.",
    )
    example = ("(variance (tensor (list 1.0 2.0 3.0)) :correction 1)", "1.0")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        results = super().infer(inputs, attributes)
        axes = normalize_axes(self.name, attributes["axis"], inputs[0].rank)
        size = reduced_size(inputs[0], axes)
        correction = attributes["correction"]
        if correction < 0 or (not isinstance(size, Batch) and correction >= size):
            fail_value(
                "`variance` divides by the number of elements less the correction",
                came=f"{size} elements, correction {correction}",
                expected="a correction from 0 up and more elements than that",
            )
        return results

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        distance = x - np.mean(x, axis=axes, keepdims=True)
        total = np.sum(distance * distance, axis=axes, keepdims=True)
        count = np.prod([x.shape[axis] for axis in axes], dtype=int)
        # As NumPy: a division by 0 where the records are no more than the correction.
        return np.asarray(total / x.dtype.type(max(count - attributes["correction"], 0)))

    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        over = onnx.ints(axes)
        distance = onnx.add("Sub", x.name, onnx.add("ReduceMean", x.name, over, keepdims=1))
        square = onnx.add("Mul", distance, distance)
        if attributes["correction"] == 0:
            return onnx.add("ReduceMean", square, over, keepdims=keep)
        total = onnx.add("ReduceSum", square, over, keepdims=keep)
        return onnx.add("Div", total, self._divisor(onnx, x, axes, attributes["correction"]))

    def _divisor(self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], correction: int) -> str:
        size = reduced_size(x.type, axes)
        if not isinstance(size, Batch):
            return onnx.scalar(size - correction, x.dtype)
        count = onnx.add("Squeeze", onnx.shape([size]), onnx.ints([0]))
        left = onnx.add("Sub", count, onnx.scalar(correction, DType.I64))
        return onnx.cast(onnx.add("Max", left, onnx.scalar(0, DType.I64)), x.dtype)


@operation
class Logsumexp(Reduction):
    """`log(sum(exp(x)))`, computed as `m + log(sum(exp(x - m)))` with the largest element m, so
    that nothing overflows; -inf of no elements, or of -inf alone.

    ONNX: ReduceMax, Sub, Exp, ReduceLogSum and Add; m is clipped to finite numbers.
    """

    name = "logsumexp"
    signature = reduction(FLOATS)
    constraints = ("The axes are different axes of `x`.",)
    example = ("(logsumexp (tensor (list 1000.0 -inf)))", "1000.0")

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        largest = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(largest), largest, x.dtype.type(0))
        return np.asarray(np.log(np.sum(np.exp(x - shift), axis=axes, keepdims=True)) + shift)

    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        over = onnx.ints(axes)
        bound = float(np.finfo(x.dtype.numpy).max)
        largest = onnx.add("ReduceMax", x.name, over, keepdims=1)
        bounds = (onnx.scalar(-bound, x.dtype), onnx.scalar(bound, x.dtype))
        shift = onnx.add("Clip", largest, *bounds)
        shifted = onnx.add("Exp", onnx.add("Sub", x.name, shift))
        total = onnx.add("ReduceLogSum", shifted, over, keepdims=keep)
        return onnx.add("Add", total, shift if keep else onnx.add("Squeeze", shift, over))


@operation
class Norm(Reduction):
    """The vector norm: of order 2 `sqrt(sum(x^2))`, of order 1 `sum(|x|)`, of order inf
    `max(|x|)`.

    ONNX: ReduceL2, ReduceL1, or ReduceMax of Abs.
    """

    name = "norm"
    signature = reduction(FLOATS, Attribute("order", Kind.NUMBER, 2.0))
    constraints = (
        "The axes are different axes of `x`.",
        "The order is 1, 2 or inf.",
        "Of order inf there is an element to reduce.",
    )
    example = ("(norm (tensor (list 3.0 4.0)))", "5.0")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        order = attributes["order"]
        if order not in (1, 2, np.inf):
            fail_value("`norm` has no such order", came=f"order {order:g}", expected="1, 2 or inf")
        axes = normalize_axes(self.name, attributes["axis"], inputs[0].rank)
        if order == np.inf and reduced_size(inputs[0], axes) == 0:
            fail_value(
                "`norm` of order inf needs an element", came=f"axes {list(axes)} of {inputs[0]}"
            )
        return super().infer(inputs, attributes)

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        size = np.abs(x)
        if attributes["order"] == np.inf:
            return np.asarray(np.max(size, axis=axes, keepdims=True))
        if attributes["order"] == 1:
            return np.asarray(np.sum(size, axis=axes, keepdims=True))
        return np.asarray(np.sqrt(np.sum(size * size, axis=axes, keepdims=True)))

    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        over = onnx.ints(axes)
        if attributes["order"] == np.inf:
            largest = onnx.add("ReduceMax", onnx.add("Abs", x.name), over, keepdims=keep)
            return with_nan(onnx, largest, x, axes, keep)
        operator = "ReduceL1" if attributes["order"] == 1 else "ReduceL2"
        return onnx.add(operator, x.name, over, keepdims=keep)
