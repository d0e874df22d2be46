"""Rounding, exponentials, roots, and the functions of the circle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations import special
from sexpgpu.export.operations.elementwise import UNARY_FLOAT, ElementwiseFormula, NativeFunction
from sexpgpu.export.operations.operation import operation


@operation
class Floor(NativeFunction):
    """The greatest whole number that is not above x.  ONNX: Floor."""

    name = "floor"
    signature = UNARY_FLOAT
    function = np.floor
    operator = "Floor"
    example = ("(floor (tensor (list 1.5 -1.5)))", "[1.0 -2.0]")


@operation
class Ceil(NativeFunction):
    """The least whole number that is not below x.  ONNX: Ceil."""

    name = "ceil"
    signature = UNARY_FLOAT
    function = np.ceil
    operator = "Ceil"
    example = ("(ceil (tensor (list 1.5 -1.5)))", "[2.0 -1.0]")


@operation
class Round(NativeFunction):
    """The nearest whole number; of two as near, the even one.  ONNX: Round."""

    name = "round"
    signature = UNARY_FLOAT
    function = np.rint
    operator = "Round"
    example = ("(round (tensor (list 0.5 1.5 -2.6)))", "[0.0 2.0 -3.0]")


@operation
class Exp(NativeFunction):
    """e to the power x.  ONNX: Exp."""

    name = "exp"
    signature = UNARY_FLOAT
    function = np.exp
    operator = "Exp"
    example = ("(exp (tensor (list 0.0)))", "[1.0]")


@operation
class Log(NativeFunction):
    """The natural logarithm; of 0 it is -inf, of a negative number NaN.  ONNX: Log."""

    name = "log"
    signature = UNARY_FLOAT
    function = np.log
    operator = "Log"
    example = ("(log (tensor (list 1.0 0.0)))", "[0.0 -inf]")


@operation
class Log1p(ElementwiseFormula):
    """log(1 + x), to full precision near 0.

    ONNX: Log of the rounded sum, and near 0 a correction by what was rounded away.
    """

    name = "log1p"
    signature = UNARY_FLOAT
    example = ("(log1p (tensor (list 0.0 -1.0)))", "[0.0 -inf]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.log1p(arrays[0]))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return special.log1p(terms[0])


@operation
class Expm1(ElementwiseFormula):
    """exp(x) - 1, to full precision near 0.

    ONNX: from Tanh below 1/2, where nothing cancels, and from Exp above.
    """

    name = "expm1"
    signature = UNARY_FLOAT
    example = ("(expm1 (tensor (list 0.0)))", "[0.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.expm1(arrays[0]))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return special.expm1(terms[0])


@operation
class Sqrt(NativeFunction):
    """The square root; of a negative number it is NaN.  ONNX: Sqrt."""

    name = "sqrt"
    signature = UNARY_FLOAT
    function = np.sqrt
    operator = "Sqrt"
    example = ("(sqrt (tensor (list 4.0 9.0)))", "[2.0 3.0]")


@operation
class ReciprocalSqrt(ElementwiseFormula):
    """1 / sqrt(x); of 0 it is infinite.  ONNX: Reciprocal of Sqrt."""

    name = "rsqrt"
    signature = UNARY_FLOAT
    example = ("(rsqrt (tensor (list 4.0 0.25)))", "[0.5 2.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(1 / np.sqrt(arrays[0]))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return terms[0].apply("Sqrt").apply("Reciprocal")


@operation
class Sin(NativeFunction):
    """The sine of an angle in radians; of an infinite one it is NaN.  ONNX: Sin."""

    name = "sin"
    signature = UNARY_FLOAT
    function = np.sin
    operator = "Sin"
    example = ("(sin (tensor (list 0.0)))", "[0.0]")


@operation
class Cos(NativeFunction):
    """The cosine of an angle in radians; of an infinite one it is NaN.  ONNX: Cos."""

    name = "cos"
    signature = UNARY_FLOAT
    function = np.cos
    operator = "Cos"
    example = ("(cos (tensor (list 0.0)))", "[1.0]")


@operation
class Tan(ElementwiseFormula):
    """The tangent of an angle in radians; of an infinite one it is NaN.

    ONNX: Tan; over f64, which runtimes lack, Sin by Cos of the angle's rest by π/2.
    """

    name = "tan"
    signature = UNARY_FLOAT
    example = ("(tan (tensor (list 0.0)))", "[0.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.tan(arrays[0]))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return special.tan(terms[0])


@operation
class Tanh(NativeFunction):
    """The hyperbolic tangent.  ONNX: Tanh."""

    name = "tanh"
    signature = UNARY_FLOAT
    function = np.tanh
    operator = "Tanh"
    example = ("(tanh (tensor (list 0.0)))", "[0.0]")


@operation
class Erf(ElementwiseFormula):
    """The error function, 2/√π times the integral of exp(-t²) from 0 to x.

    ONNX: Erf; over f64, which runtimes lack, the rational approximations of W. J. Cody (1969).
    """

    name = "erf"
    signature = UNARY_FLOAT
    example = ("(erf (tensor (list 0.0)))", "[0.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return special.erf_array(arrays[0])

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return special.erf(terms[0])
