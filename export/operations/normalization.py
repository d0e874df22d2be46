"""Normalisation along axes: softmax, its logarithm, layer and root-mean-square normalisation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, Array, DType, TensorType, concrete, format_shape
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import fail_shape, fail_value, known, normalize_axis
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


class Distribution(Operation):
    """One axis becomes a distribution; the others stay apart."""

    family = "normalization"
    signature = signature(Operand("x", FLOATS), Attribute("axis", Kind.INTEGER, -1))
    constraints = ("`axis` is an axis of `x`; a negative one counts from the end.",)

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        normalize_axis(self.name, attributes["axis"], inputs[0].rank)
        return [inputs[0]]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x = _wide(inputs[0])
        axis = attributes["axis"]
        centered = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        return [self.finish(centered, axis).astype(inputs[0].dtype)]

    @abstractmethod
    def finish(self, centered: Array, axis: int) -> Array:
        """The result, from x less its largest element along the axis."""

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        mixed = normalize_axis(self.name, attributes["axis"], inputs[0].rank)
        return [WHOLE if axis == mixed else Apart(axis)]


@operation
class Softmax(Distribution):
    """exp(x_i) / Σ_j exp(x_j) along an axis, computed from x less its maximum.

    A row that holds NaN or inf, or nothing but -inf, is NaN.  ONNX: Softmax.
    """

    name = "softmax"
    example = ("(softmax (tensor (list 0.0 0.0)))", "[0.5 0.5]")

    def finish(self, centered: Array, axis: int) -> Array:
        e = np.exp(centered)
        return np.asarray(e / np.sum(e, axis=axis, keepdims=True))

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [onnx.add("Softmax", inputs[0].name, axis=attributes["axis"])]


@operation
class LogSoftmax(Distribution):
    """The logarithm of softmax: x_i - max x - log Σ_j exp(x_j - max x).

    A row that holds NaN or inf, or nothing but -inf, is NaN.

    ONNX: LogSoftmax; in f64 its steps, since ONNX Runtime's gives -inf beside inf.
    """

    name = "log-softmax"
    example = ("(exp (log-softmax (tensor (list 1.0 1.0))))", "[0.5 0.5]")

    def finish(self, centered: Array, axis: int) -> Array:
        return np.asarray(centered - np.log(np.sum(np.exp(centered), axis=axis, keepdims=True)))

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [log_softmax(onnx, inputs[0], attributes["axis"])]


def log_softmax(onnx: Lowering, x: OnnxValue, axis: int) -> str:
    """The ONNX form of log-softmax."""
    if x.dtype is not DType.F64 or 0 in x.shape:
        return onnx.add("LogSoftmax", x.name, axis=axis)
    axes = onnx.ints([axis])
    centered = onnx.add("Sub", x.name, onnx.add("ReduceMax", x.name, axes, keepdims=1))
    total = onnx.add("ReduceSum", onnx.add("Exp", centered), axes, keepdims=1)
    return onnx.add("Sub", centered, onnx.add("Log", total))


class Standardization(Operation):
    """The trailing axes from `axis` on are normalised as one; the axes before stay apart."""

    family = "normalization"
    constraints = (
        "`axis` is an axis of `x`; a negative one counts from the end.",
        "None of the axes from `axis` on is the batch.",
        "`scale` and `bias` have the shape of the axes from `axis` on.",
        "`epsilon` is a finite number, at least 0.",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        given = self.named(inputs, attributes)
        x: TensorType = given.pop("x")
        start = normalize_axis(self.name, attributes["axis"], x.rank)
        for dimension in x.shape[start:]:
            known(self.name, "the axes that it normalises", dimension)
        for name, type in given.items():
            if type.shape != x.shape[start:]:
                fail_shape(
                    f"`{name}` of `{self.name}` is not of the shape that is normalised",
                    came=format_shape(type.shape),
                    expected=format_shape(x.shape[start:]),
                )
        if not 0 <= attributes["epsilon"] < np.inf:
            fail_value(
                f"`epsilon` of `{self.name}` is out of range",
                came=str(attributes["epsilon"]),
                expected="a finite number, at least 0",
            )
        return [x]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        if not inputs[0].size:
            return [inputs[0]]
        x, *rest = map(_wide, inputs)
        axes = tuple(range(attributes["axis"] % x.ndim, x.ndim))
        epsilon = x.dtype.type(attributes["epsilon"])
        given = self.named([x, *rest], attributes)
        y = self.standardize(x, axes, epsilon) * given.get("scale", x.dtype.type(1))
        return [(y + given["bias"] if "bias" in given else y).astype(inputs[0].dtype)]

    @abstractmethod
    def standardize(self, x: Array, axes: tuple[int, ...], epsilon: Array) -> Array:
        """The result before scale and bias."""

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        given = self.named(inputs, attributes)
        x: OnnxValue = given["x"]
        if 0 in x.shape:
            return [onnx.add("Identity", x.name)]
        start = normalize_axis(self.name, attributes["axis"], x.type.rank)
        if "scale" in given:
            scale = given["scale"].name
        else:
            scale = onnx.constant(np.ones(concrete(x.shape[start:], 1), x.dtype.numpy))
        bias = given["bias"].name if "bias" in given else ""
        return [self.write(onnx, x, start, scale, bias, attributes["epsilon"])]

    @abstractmethod
    def write(
        self, onnx: Lowering, x: OnnxValue, axis: int, scale: str, bias: str, epsilon: float
    ) -> str:
        """Adds the ONNX nodes; the scale is ones and the bias empty where none is given."""

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        start = normalize_axis(self.name, attributes["axis"], inputs[0].rank)
        if operand:
            return [Apart(start + axis)]
        return [Apart(axis) if axis < start else WHOLE]


@operation
class LayerNormalize(Standardization):
    """(x - mean) / √(variance + epsilon) · scale + bias, over the axes from `axis` on.

    Ba, Kiros, Hinton 2016.  The variance is that of the axes' elements, divided by their number.
    In bf16 all is computed in f32 and rounded once.

    ONNX: LayerNormalization; in f64 its steps, since epsilon is f32 there.
    """

    name = "layer-normalize"
    signature = signature(
        Operand("x", FLOATS),
        Operand("scale", FLOATS, optional=True),
        Operand("bias", FLOATS, optional=True),
        Attribute("axis", Kind.INTEGER, -1),
        Attribute("epsilon", Kind.NUMBER, 1e-5),
    )
    example = ("(layer-normalize (tensor (list 1.0 3.0)) :epsilon 0.0)", "[-1.0 1.0]")

    def standardize(self, x: Array, axes: tuple[int, ...], epsilon: Array) -> Array:
        centered = x - np.mean(x, axis=axes, keepdims=True)
        variance = np.mean(centered * centered, axis=axes, keepdims=True)
        return np.asarray(centered / np.sqrt(variance + epsilon))

    def write(
        self, onnx: Lowering, x: OnnxValue, axis: int, scale: str, bias: str, epsilon: float
    ) -> str:
        if x.dtype is not DType.F64:
            return onnx.add("LayerNormalization", x.name, scale, bias, axis=axis, epsilon=epsilon)
        axes = onnx.ints(range(axis, x.type.rank))
        centered = onnx.add("Sub", x.name, onnx.add("ReduceMean", x.name, axes, keepdims=1))
        y = onnx.add("Mul", _divide_by_root(onnx, centered, axes, x.dtype, epsilon), scale)
        return onnx.add("Add", y, bias) if bias else y


@operation
class RmsNormalize(Standardization):
    """x / √(mean x² + epsilon) · scale, over the axes from `axis` on.

    Zhang, Sennrich 2019.  In bf16 all is computed in f32 and rounded once.

    ONNX: Pow, ReduceMean, Add, Sqrt, Div and Mul; in the fused profile RMSNormalization for f32.
    """

    name = "rms-normalize"
    signature = signature(
        Operand("x", FLOATS),
        Operand("scale", FLOATS, optional=True),
        Attribute("axis", Kind.INTEGER, -1),
        Attribute("epsilon", Kind.NUMBER, 1e-6),
    )
    example = ("(rms-normalize (tensor (list 3.0 3.0)) :epsilon 0.0)", "[1.0 1.0]")

    def standardize(self, x: Array, axes: tuple[int, ...], epsilon: Array) -> Array:
        return np.asarray(x / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + epsilon))

    def write(
        self, onnx: Lowering, x: OnnxValue, axis: int, scale: str, bias: str, epsilon: float
    ) -> str:
        if onnx.fused and x.dtype is DType.F32:
            return onnx.add("RMSNormalization", x.name, scale, axis=axis, epsilon=epsilon)
        axes = onnx.ints(range(axis, x.type.rank))
        return onnx.add("Mul", _divide_by_root(onnx, x.name, axes, x.dtype, epsilon), scale)


def _divide_by_root(onnx: Lowering, x: str, axes: str, dtype: DType, epsilon: float) -> str:
    """x / √(mean x² + epsilon).

    ONNX Runtime makes one operator of these steps where the square is a Pow: fast in f32, but
    computed in f32 for f64 too, so that there the square is a product.
    """
    if dtype is DType.F64:
        square = onnx.add("Mul", x, x)
    else:
        square = onnx.add("Pow", x, onnx.scalar(2, dtype))
    mean = onnx.add("ReduceMean", square, axes, keepdims=1)
    root = onnx.add("Sqrt", onnx.add("Add", mean, onnx.scalar(epsilon, dtype)))
    return onnx.add("Div", x, root)


def _wide(array: Array) -> Array:
    """In f32 where it is bf16."""
    return array.astype(np.float32) if DType.of(array) is DType.BF16 else array
