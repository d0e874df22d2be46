"""Sums, differences, products, and the larger and smaller of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import NUMBERS, Array, DType, TensorType
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.elementwise import (
    BINARY_NUMBER,
    UNARY_NUMBER,
    ElementwiseFormula,
    NativeFunction,
)
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.rules import fail_value
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class Add(NativeFunction):
    """a + b; integers wrap around.  ONNX: Add."""

    name = "+"
    signature = BINARY_NUMBER
    function = np.add
    operator = "Add"
    example = ("(+ (tensor (list 1.0 2.0)) 10)", "[11.0 12.0]")


@operation
class Subtract(NativeFunction):
    """a - b; integers wrap around.  ONNX: Sub."""

    name = "-"
    signature = BINARY_NUMBER
    function = np.subtract
    operator = "Sub"
    example = ("(- (tensor (list 1.0 2.0)) (tensor (list 0.5 4.0)))", "[0.5 -2.0]")


@operation
class Multiply(NativeFunction):
    """a · b; integers wrap around.  ONNX: Mul."""

    name = "*"
    signature = BINARY_NUMBER
    function = np.multiply
    operator = "Mul"
    example = ("(* (tensor (list 1.0 2.0)) 3)", "[3.0 6.0]")


@operation
class Negate(NativeFunction):
    """-x; the least integer, which has no opposite, stays as it is.  ONNX: Neg."""

    name = "neg"
    signature = UNARY_NUMBER
    function = np.negative
    operator = "Neg"
    example = ("(neg (tensor (list 1.0 -2.0)))", "[-1.0 2.0]")


@operation
class Absolute(NativeFunction):
    """|x|; the least integer, which has no opposite, stays as it is.  ONNX: Abs."""

    name = "abs"
    signature = UNARY_NUMBER
    function = np.absolute
    operator = "Abs"
    example = ("(abs (tensor (list 1.0 -2.0)))", "[1.0 2.0]")


@operation
class Sign(NativeFunction):
    """-1, 0 or 1; NaN stays NaN.  ONNX: Sign."""

    name = "sign"
    signature = UNARY_NUMBER
    function = np.sign
    operator = "Sign"
    example = ("(sign (tensor (list -3.0 0.0 0.5)))", "[-1.0 0.0 1.0]")


@operation
class Minimum(NativeFunction):
    """The smaller of a and b; NaN where either is NaN.  ONNX: Min."""

    name = "minimum"
    signature = BINARY_NUMBER
    function = np.minimum
    operator = "Min"
    example = ("(minimum (tensor (list 1.0 5.0)) 3)", "[1.0 3.0]")


@operation
class Maximum(NativeFunction):
    """The larger of a and b; NaN where either is NaN.  ONNX: Max."""

    name = "maximum"
    signature = BINARY_NUMBER
    function = np.maximum
    operator = "Max"
    example = ("(maximum (tensor (list 1.0 5.0)) 3)", "[3.0 5.0]")


@operation
class Clip(ElementwiseFormula):
    """x, but `low` where it is less and `high` where it is more; nil is no bound.

    NaN stays NaN.  The bounds are rounded to the dtype of x.  ONNX: Clip.
    """

    name = "clip"
    signature = signature(
        Operand("x", NUMBERS),
        Attribute("low", Kind.NUMBER, None, keyword=False),
        Attribute("high", Kind.NUMBER, None, keyword=False),
    )
    constraints = (
        "`low` is at most `high`, and neither is NaN.",
        "The bounds of integers are whole numbers or infinite.",
    )
    example = ("(clip (tensor (list -1.0 0.5 9.0)) 0 6)", "[0.0 0.5 6.0]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        low, high = attributes["low"], attributes["high"]
        for bound in (low, high):
            if bound is None:
                continue
            if math.isnan(bound):
                fail_value("a bound of `clip` is no number", came="nan", help="nil is no bound")
            if inputs[0].dtype.is_integer and math.isfinite(bound) and bound != int(bound):
                fail_value(
                    "`clip` of integers has whole numbers as bounds",
                    came=str(bound),
                    help="convert the tensor to floats with `cast`",
                )
        if low is not None and high is not None and low > high:
            fail_value(
                "the bounds of `clip` stand in the wrong order",
                came=f"low {low}, high {high}",
                expected="low at most high",
            )
        return [inputs[0]]

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        x = arrays[0]
        low, high = bounds(attributes, DType.of(x))
        return np.asarray(np.minimum(np.maximum(x, low), high))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        x = terms[0]
        low, high = bounds(attributes, x.dtype)
        return x.apply("Clip", x.constant(low), x.constant(high))


def bounds(attributes: Attributes, dtype: DType) -> tuple[Any, Any]:
    """The bounds as numbers of the dtype; what lies outside of it is its least or greatest."""
    if dtype.is_float:
        least, greatest = -math.inf, math.inf
    else:
        info = np.iinfo(dtype.numpy)
        least, greatest = info.min, info.max
    found = []
    for name, default in (("low", least), ("high", greatest)):
        bound = default if attributes[name] is None else attributes[name]
        # Python compares an int with a float exactly: 2.0^63 is more than the greatest i64.
        bound = min(max(bound, least), greatest)
        found.append(dtype.numpy.type(bound if dtype.is_float else int(bound)))
    return found[0], found[1]
