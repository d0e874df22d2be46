"""Comparisons of two tensors, and whether numbers are finite: the result is bool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import ANY, NUMBERS, Array, DType, TensorType
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.elementwise import (
    BINARY_NUMBER,
    UNARY_FLOAT,
    ElementwiseFormula,
    NativeFunction,
)
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.signature import Operand, signature


class Predicate(ElementwiseFormula):
    """An elementwise operation whose result is bool."""

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        return [super().infer(inputs, attributes)[0].with_dtype(DType.BOOL)]


class NativePredicate(Predicate, NativeFunction):
    """A predicate that is one ONNX operator, on all of its dtypes."""


_EQUALITY = signature(Operand("a", ANY), Operand("b", ANY))


def _equal(terms: Sequence[Term]) -> Term:
    """TVM makes a comparison of floats of an Equal of booleans, and refuses it."""
    a, b = terms
    return ~(a ^ b) if a.dtype is DType.BOOL else a.equals(b)


@operation
class Equal(Predicate):
    """Whether a equals b; NaN equals nothing.  ONNX: Equal; of bool Not of Xor."""

    name = "="
    signature = _EQUALITY
    example = ("(= (tensor (list 1 2)) 2)", "[false true]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.equal(*arrays))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return _equal(terms)


@operation
class NotEqual(Predicate):
    """Whether a differs from b; NaN differs from everything.  ONNX: Not of Equal; of bool Xor."""

    name = "!="
    signature = _EQUALITY
    example = ("(!= (tensor (list 1 2)) 2)", "[true false]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.not_equal(*arrays))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return terms[0] ^ terms[1] if terms[0].dtype is DType.BOOL else ~_equal(terms)


@operation
class Less(NativePredicate):
    """Whether a < b; false where either is NaN.  ONNX: Less."""

    name = "<"
    signature = BINARY_NUMBER
    function = np.less
    operator = "Less"
    example = ("(< (tensor (list 1 2)) 2)", "[true false]")


@operation
class LessOrEqual(NativePredicate):
    """Whether a ≤ b; false where either is NaN.  ONNX: LessOrEqual."""

    name = "<="
    signature = BINARY_NUMBER
    function = np.less_equal
    operator = "LessOrEqual"
    example = ("(<= (tensor (list 1 2 3)) 2)", "[true true false]")


@operation
class Greater(NativePredicate):
    """Whether a > b; false where either is NaN.  ONNX: Greater."""

    name = ">"
    signature = BINARY_NUMBER
    function = np.greater
    operator = "Greater"
    example = ("(> (tensor (list 2 3)) 2)", "[false true]")


@operation
class GreaterOrEqual(NativePredicate):
    """Whether a ≥ b; false where either is NaN.  ONNX: GreaterOrEqual."""

    name = ">="
    signature = BINARY_NUMBER
    function = np.greater_equal
    operator = "GreaterOrEqual"
    example = ("(>= (tensor (list 1 2 3)) 2)", "[false true true]")


@operation
class IsNan(NativePredicate):
    """Whether x is NaN.  ONNX: IsNaN."""

    name = "is-nan"
    signature = UNARY_FLOAT
    function = np.isnan
    operator = "IsNaN"
    example = ("(is-nan (tensor (list nan inf 1.0)))", "[true false false]")


@operation
class IsFinite(Predicate):
    """Whether x is neither infinite nor NaN; integers always are.

    ONNX: Abs, Less than infinity; over integers Equal to itself.
    """

    name = "is-finite"
    signature = signature(Operand("x", NUMBERS))
    example = ("(is-finite (tensor (list nan inf 1.0)))", "[false false true]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.isfinite(arrays[0]))

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        x = terms[0]
        return abs(x) < np.inf if x.dtype.is_float else x.equals(x)
