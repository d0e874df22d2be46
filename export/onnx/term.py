"""Formulas in ONNX: values on which Python's operators add nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sexpgpu.export.graph.types import DType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value of an ONNX graph in a formula.

    Each operator and method adds one node.  A number beside a term is a constant of its dtype.
    `&`, `|`, `^` and `~` are logical on bool and bitwise on integers.
    """

    onnx: Lowering
    name: str
    dtype: DType

    @classmethod
    def of(cls, onnx: Lowering, value: OnnxValue) -> Term:
        return cls(onnx, value.name, value.dtype)

    def apply(
        self, operator: str, *others: Factor, dtype: DType | None = None, **attributes: Any
    ) -> Term:
        """The ONNX operator applied to this term and others; `dtype` where the result's differs."""
        names = [self.name, *(self.like(other).name for other in others)]
        made = self.onnx.add(operator, *names, **attributes)
        return Term(self.onnx, made, dtype or self.dtype)

    def like(self, value: Factor) -> Term:
        """A constant of this term's dtype; a term is given back as it is."""
        if isinstance(value, Term):
            return value
        return self.constant(np.asarray(value, self.dtype.numpy))

    def constant(self, array: Any) -> Term:
        """A constant, of the array's own dtype."""
        array = np.asarray(array)
        return Term(self.onnx, self.onnx.constant(array), DType.of(array))

    def cast(self, dtype: DType) -> Term:
        return Term(self.onnx, self.onnx.cast(self.name, dtype), dtype)

    def __add__(self, other: Factor) -> Term:
        return self.apply("Add", other)

    def __radd__(self, other: float) -> Term:
        return self.like(other) + self

    def __sub__(self, other: Factor) -> Term:
        return self.apply("Sub", other)

    def __rsub__(self, other: float) -> Term:
        return self.like(other) - self

    def __mul__(self, other: Factor) -> Term:
        return self.apply("Mul", other)

    def __rmul__(self, other: float) -> Term:
        return self.like(other) * self

    def __truediv__(self, other: Factor) -> Term:
        """ONNX's Div: of integers it is cut towards zero."""
        return self.apply("Div", other)

    def __rtruediv__(self, other: float) -> Term:
        return self.like(other) / self

    def __neg__(self) -> Term:
        return self.apply("Neg")

    def __abs__(self) -> Term:
        return self.apply("Abs")

    def __lt__(self, other: Factor) -> Term:
        return self.apply("Less", other, dtype=DType.BOOL)

    def __le__(self, other: Factor) -> Term:
        return self.apply("LessOrEqual", other, dtype=DType.BOOL)

    def __gt__(self, other: Factor) -> Term:
        return self.apply("Greater", other, dtype=DType.BOOL)

    def __ge__(self, other: Factor) -> Term:
        return self.apply("GreaterOrEqual", other, dtype=DType.BOOL)

    def equals(self, other: Factor) -> Term:
        return self.apply("Equal", other, dtype=DType.BOOL)

    def __and__(self, other: Factor) -> Term:
        return self.apply("And" if self.dtype is DType.BOOL else "BitwiseAnd", other)

    def __or__(self, other: Factor) -> Term:
        return self.apply("Or" if self.dtype is DType.BOOL else "BitwiseOr", other)

    def __xor__(self, other: Factor) -> Term:
        return self.apply("Xor" if self.dtype is DType.BOOL else "BitwiseXor", other)

    def __invert__(self) -> Term:
        return self.apply("Not" if self.dtype is DType.BOOL else "BitwiseNot")

    def where(self, chosen: Factor, other: Factor) -> Term:
        """`chosen` where this bool term is true, else `other`; one of them is a term.

        ONNX Runtime has no Where over bool values.
        """
        term = chosen if isinstance(chosen, Term) else other
        assert isinstance(term, Term)
        return self.apply("Where", term.like(chosen), term.like(other), dtype=term.dtype)

    def polynomial(self, coefficients: Sequence[float]) -> Term:
        """Horner's scheme; the coefficient of the highest power comes first."""
        total = self * coefficients[0] + coefficients[1]
        for coefficient in coefficients[2:]:
            total = total * self + coefficient
        return total


Factor: TypeAlias = Term | float
