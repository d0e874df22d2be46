"""Activations of neural networks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations import special
from sexpgpu.export.operations.elementwise import UNARY_FLOAT, UNARY_NUMBER, ElementwiseFormula
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


def sigmoid_array(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow on either side."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, x.dtype.type(1), small) / (1 + small))


def sigmoid_term(x: Term) -> Term:
    """`sigmoid_array` in ONNX."""
    if x.dtype is DType.F64:
        # ONNX Runtime 1.30 fuses Sigmoid and a product with it to an operator without f64.
        return (1 + (-x).apply("Exp")).apply("Reciprocal")
    return x.apply("Sigmoid")


@operation
class Sigmoid(ElementwiseFormula):
    """1 / (1 + exp(-x)).

    ONNX: Sigmoid; over f64 Exp, Add and Reciprocal.  ONNX Runtime's is exact to 2e-7 in f32 and
    gives 0 below -18.
    """

    name = "sigmoid"
    signature = UNARY_FLOAT
    bounded_below = never_negative = True
    example = ("(sigmoid (tensor (list 0.0)))", "[0.5]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return sigmoid_array(arrays[0])

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return sigmoid_term(terms[0])


@operation
class Softplus(ElementwiseFormula):
    """log(1 + exp(x)), without overflow.

    ONNX: Softplus; over f64, which runtimes lack, max(x, 0) + log1p(exp(-|x|)).
    """

    name = "softplus"
    signature = UNARY_FLOAT
    example = ("(softplus (tensor (list 100.0 -inf)))", "[100.0 0.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.logaddexp(arrays[0], arrays[0].dtype.type(0)))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        x = terms[0]
        if x.dtype is not DType.F64:
            return x.apply("Softplus")
        return x.apply("Max", 0) + special.log1p((-abs(x)).apply("Exp"))


@operation
class Relu(ElementwiseFormula):
    """max(x, 0); NaN stays NaN.  ONNX: Relu; Max over integers."""

    name = "relu"
    signature = UNARY_NUMBER
    bounded_below = never_negative = True
    example = ("(relu (tensor (list -1.0 2.0)))", "[0.0 2.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.maximum(arrays[0], arrays[0].dtype.type(0)))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        x = terms[0]
        return x.apply("Relu") if x.dtype.is_float else x.apply("Max", 0)


@operation
class LeakyRelu(ElementwiseFormula):
    """x, and slope · x where x is negative.  ONNX: LeakyRelu; Where over f64."""

    name = "leaky-relu"
    signature = signature(Operand("x", FLOATS), Attribute("slope", Kind.NUMBER, 0.01))
    example = ("(leaky-relu (tensor (list -2.0 2.0)) :slope 0.5)", "[-1.0 2.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        x = arrays[0]
        return np.where(x < 0, x * x.dtype.type(attributes["slope"]), x)

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        x, slope = terms[0], attributes["slope"]
        if x.dtype is DType.F64:
            return (x < 0).where(x * slope, x)
        return x.apply("LeakyRelu", alpha=float(slope))


@operation
class Elu(ElementwiseFormula):
    """x, and alpha · (exp(x) - 1) where x is negative.

    Clevert et al. 2015, https://arxiv.org/abs/1511.07289.  ONNX: Elu; Where and expm1 over f64.
    """

    name = "elu"
    signature = signature(Operand("x", FLOATS), Attribute("alpha", Kind.NUMBER, 1.0))
    example = ("(elu (tensor (list -inf 2.0)))", "[-1.0 2.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        x = arrays[0]
        return np.where(x < 0, np.expm1(x) * x.dtype.type(attributes["alpha"]), x)

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        x, alpha = terms[0], attributes["alpha"]
        if x.dtype is DType.F64:
            return (x < 0).where(special.expm1(x) * alpha, x)
        return x.apply("Elu", alpha=float(alpha))


@operation
class Silu(ElementwiseFormula):
    """x · sigmoid(x), also called swish; NaN at -inf, as the product has it.

    Elfwing et al. 2017, https://arxiv.org/abs/1702.03118.  ONNX: x times what `sigmoid`
    becomes.
    """

    name = "silu"
    signature = UNARY_FLOAT
    bounded_below = True
    example = ("(silu (tensor (list 0.0 100.0)))", "[0.0 100.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(arrays[0] * sigmoid_array(arrays[0]))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return terms[0] * sigmoid_term(terms[0])


#: Of the approximation of gelu by tanh.
GELU_CUBIC = 0.044715


@operation
class Gelu(ElementwiseFormula):
    """x · (1 + erf(x / √2)) / 2; NaN at -inf, as the product has it.

    With `:tanh true` the approximation x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) / 2.
    Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415.

    ONNX: Div, Erf, Add, Mul, Mul, which runtimes know and fuse; Gelu in the profile fused.
    """

    name = "gelu"
    signature = signature(Operand("x", FLOATS), Attribute("tanh", Kind.BOOLEAN, False))
    bounded_below = True
    example = ("(gelu (tensor (list 0.0 100.0)))", "[0.0 100.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        x = arrays[0]
        if attributes["tanh"]:
            gate = np.tanh(math.sqrt(2 / math.pi) * (x + GELU_CUBIC * (x * x * x)))
        else:
            gate = special.erf_array(np.asarray(x / math.sqrt(2)))
        return np.asarray(0.5 * x * (1 + gate))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        x, tanh = terms[0], attributes["tanh"]
        if x.onnx.fused and x.dtype is not DType.F64:
            return x.apply("Gelu", approximate="tanh" if tanh else "none")
        if tanh:
            gate = ((x * math.sqrt(2 / math.pi)) * (x * GELU_CUBIC * x + 1)).apply("Tanh")
        else:
            gate = special.erf(x / math.sqrt(2))
        return (x * (terms[1] if len(terms) > 1 else 0.5)) * (gate + 1)

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        if not attributes["tanh"] or not inputs[0].shape:
            return super().lower(onnx, inputs, attributes, results)
        # ONNX Runtime takes half of x away with what it fuses, whoever else reads it.  It is to be
        # no other's: by an axis of length 1 it is not the product that others write.
        x = Term.of(onnx, inputs[0])
        half = x.constant(np.full(1, 0.5, x.dtype.numpy))
        return [self.formula([x, half], attributes).name]


@operation
class HardSwish(ElementwiseFormula):
    """x · clip(x/6 + 1/2, 0, 1); NaN at -inf, as the product has it.

    Howard et al. 2019, https://arxiv.org/abs/1905.02244.  ONNX: HardSwish; Clip over f64.
    """

    name = "hard-swish"
    signature = UNARY_FLOAT
    bounded_below = True
    example = ("(hard-swish (tensor (list 0.0 1.5 4.0)))", "[0.0 1.125 4.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(arrays[0] * np.clip(arrays[0] / 6 + 0.5, 0, 1))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        x = terms[0]
        if x.dtype is DType.F64:
            return x * (x / 6 + 0.5).apply("Clip", 0, 1)
        return x.apply("HardSwish")
