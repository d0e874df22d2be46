"""The inverse functions of the circle, and the functions of the hyperbola and theirs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, Array, DType
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations import special
from sexpgpu.export.operations.elementwise import UNARY_FLOAT, ElementwiseFormula
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.signature import Operand, signature


class NativeInF32(ElementwiseFormula):
    """A NumPy function that is one ONNX operator, which runtimes have in f32 alone."""

    signature = UNARY_FLOAT
    function: ClassVar[np.ufunc]
    operator: ClassVar[str]

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(self.function(arrays[0]))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        x = terms[0]
        return self.in_f64(x) if x.dtype is DType.F64 else x.apply(self.operator)

    @abstractmethod
    def in_f64(self, x: Term) -> Term:
        """The function from operators that runtimes have in f64."""


@operation
class Asin(NativeInF32):
    """The angle, from -π/2 to π/2, whose sine is x; NaN where |x| > 1.

    ONNX: Asin; over f64, which runtimes lack, atan of x / √(1 - x²).
    """

    name = "asin"
    function = np.arcsin
    operator = "Asin"
    example = ("(asin (tensor (list 0.0)))", "[0.0]")

    def in_f64(self, x: Term) -> Term:
        return special.atan(x / ((1 - x) * (1 + x)).apply("Sqrt"))


@operation
class Acos(NativeInF32):
    """The angle, from 0 to π, whose cosine is x; NaN where |x| > 1.

    ONNX: Acos; over f64, which runtimes lack, twice the atan of √((1 - x) / (1 + x)).
    """

    name = "acos"
    function = np.arccos
    operator = "Acos"
    example = ("(acos (tensor (list 1.0)))", "[0.0]")

    def in_f64(self, x: Term) -> Term:
        return special.atan(((1 - x) / (1 + x)).apply("Sqrt")) * 2


@operation
class Atan(NativeInF32):
    """The angle, from -π/2 to π/2, whose tangent is x.

    ONNX: Atan; over f64, which runtimes lack, a rational approximation of S. L. Moshier's Cephes.
    """

    name = "atan"
    function = np.arctan
    operator = "Atan"
    example = ("(atan (tensor (list 0.0)))", "[0.0]")

    def in_f64(self, x: Term) -> Term:
        return special.atan(x)


@operation
class Atan2(ElementwiseFormula):
    """The angle, from -π to π, of the point that has the height y and lies x to the right.

    As `numpy.arctan2`, zeros of either sign and infinities included.

    ONNX: the atan of the smaller by the larger, turned to where the point lies.
    """

    name = "atan2"
    signature = signature(Operand("y", FLOATS), Operand("x", FLOATS))
    example = ("(atan2 (tensor (list 0.0)) (tensor (list 1.0)))", "[0.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.arctan2(*arrays))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        y, x = terms
        high, wide = abs(y), abs(x)
        steep = high > wide
        most, least = steep.where(high, wide), steep.where(wide, high)
        # Of equals the quotient may be 0 by 0.
        equal = (most > 0).cast(most.dtype)
        slope = most.equals(least).where(equal, least / most)
        angle = special.atan(slope)
        angle = steep.where(math.pi / 2 - angle, angle)
        angle = _is_negative(x).where(math.pi - angle, angle)
        return _is_negative(y).where(-angle, angle)


def _is_negative(x: Term) -> Term:
    """Whether a number is below zero, or the zero with a sign."""
    return (x < 0) | (x.equals(0) & (x.apply("Reciprocal") < 0))


@operation
class Sinh(NativeInF32):
    """The hyperbolic sine, (exp(x) - exp(-x)) / 2.

    ONNX: Sinh; over f64, which runtimes lack, from expm1, and from Exp where |x| is large.
    """

    name = "sinh"
    function = np.sinh
    operator = "Sinh"
    example = ("(sinh (tensor (list 0.0)))", "[0.0]")

    def in_f64(self, x: Term) -> Term:
        size = abs(x)
        near = special.expm1(size)
        near = (near + near / (near + 1)) * 0.5
        return x.apply("Sign") * (size < _LARGE).where(near, _half_of_exp(size))


@operation
class Cosh(NativeInF32):
    """The hyperbolic cosine, (exp(x) + exp(-x)) / 2.

    ONNX: Cosh; over f64, which runtimes lack, from Exp.
    """

    name = "cosh"
    function = np.cosh
    operator = "Cosh"
    example = ("(cosh (tensor (list 0.0)))", "[1.0]")

    def in_f64(self, x: Term) -> Term:
        size = abs(x)
        near = (size.apply("Exp") + (-size).apply("Exp")) * 0.5
        return (size < _LARGE).where(near, _half_of_exp(size))


#: From here on exp(-x) is nothing beside exp(x) in f64.
_LARGE = 20.0


def _half_of_exp(x: Term) -> Term:
    """exp(x) / 2, which does not overflow before its half does."""
    root = (x * 0.5).apply("Exp")
    return (root * 0.5) * root


@operation
class Asinh(NativeInF32):
    """The number whose hyperbolic sine is x.

    ONNX: Asinh; over f64, which runtimes lack, log1p of |x| + x² / (1 + √(1 + x²)).
    """

    name = "asinh"
    function = np.arcsinh
    operator = "Asinh"
    example = ("(asinh (tensor (list 0.0)))", "[0.0]")

    def in_f64(self, x: Term) -> Term:
        size = abs(x)
        square = size * size
        near = special.log1p(size + square / ((square + 1).apply("Sqrt") + 1))
        return x.apply("Sign") * (size < _HUGE).where(near, _log_of_twice(size))


@operation
class Acosh(NativeInF32):
    """The number from 0 up whose hyperbolic cosine is x; NaN where x < 1.

    ONNX: Acosh; over f64, which runtimes lack, log1p of t + √(2t + t²) with t = x - 1.
    """

    name = "acosh"
    function = np.arccosh
    operator = "Acosh"
    example = ("(acosh (tensor (list 1.0)))", "[0.0]")

    def in_f64(self, x: Term) -> Term:
        t = x - 1
        near = special.log1p(t + (t * (t + 2)).apply("Sqrt"))
        found = (x < _HUGE).where(near, _log_of_twice(x))
        return (x < 1).where(x.like(math.nan), found)


@operation
class Atanh(NativeInF32):
    """The number whose hyperbolic tangent is x; infinite where |x| is 1 and NaN beyond.

    ONNX: Atanh; over f64, which runtimes lack, half the log1p of 2x / (1 - x).
    """

    name = "atanh"
    function = np.arctanh
    operator = "Atanh"
    example = ("(atanh (tensor (list 0.0)))", "[0.0]")

    def in_f64(self, x: Term) -> Term:
        size = abs(x)
        return x.apply("Sign") * special.log1p((size + size) / (1 - size)) * 0.5


#: From here on a square and one more are equal in f64.
_HUGE = 2.0**28


def _log_of_twice(x: Term) -> Term:
    """log(2x), which does not overflow."""
    return x.apply("Log") + math.log(2)
