"""Quotients and remainders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, Array, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.elementwise import BINARY_NUMBER, ElementwiseFormula, NativeFunction
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.signature import Operand, signature


@operation
class Divide(NativeFunction):
    """a / b of floats; x / 0 is infinite and 0 / 0 is NaN.  ONNX: Div."""

    name = "/"
    signature = signature(Operand("a", FLOATS), Operand("b", FLOATS))
    function = np.divide
    operator = "Div"
    dtype_help = "convert it with `cast`, or divide whole numbers with `floor-divide`"
    example = ("(/ (tensor (list 1.0 2.0)) 4)", "[0.25 0.5]")


class FloorDivision(ElementwiseFormula):
    """What `floor-divide` and `mod` share: two formulas, and whether a divisor may trap.

    Integer division by 0, and of the least integer by -1, stops a whole process in some runtimes,
    so that neither divisor ever gets there.
    """

    signature = BINARY_NUMBER
    function: np.ufunc

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(self.function(*arrays))

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        a, b = (Term.of(onnx, value) for value in inputs)
        if a.dtype.is_float:
            return [self.of_floats(a, b).name]
        divisor = inputs[1].array
        safe = divisor is not None and not np.isin(divisor, (0, -1)).any()
        return [self.of_integers(a, b, safe=safe).name]

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        a, b = terms
        return self.of_floats(a, b) if a.dtype.is_float else self.of_integers(a, b, safe=False)

    @abstractmethod
    def of_floats(self, a: Term, b: Term) -> Term:
        """The ONNX form over floats."""

    @abstractmethod
    def of_integers(self, a: Term, b: Term, *, safe: bool) -> Term:
        """The ONNX form over integers; `safe` where no divisor is 0 or -1."""


@operation
class Modulo(FloorDivision):
    """The remainder a - b · floor(a / b), which has the sign of the divisor.

    Of integers by 0 it is 0; of floats by 0, or of an infinite a, it is NaN.  A finite a by an
    infinite b of the other sign is b, as `numpy.mod` has it.  ONNX: Mod.
    """

    name = "mod"
    function = np.mod
    example = ("(mod (tensor (list 7 -7)) 3)", "[1 2]")

    def of_floats(self, a: Term, b: Term) -> Term:
        remainder = a.apply("Mod", b, fmod=1)
        return _falls_short(remainder, b).where(remainder + b, remainder)

    def of_integers(self, a: Term, b: Term, *, safe: bool) -> Term:
        # By 1 the remainder is 0, as it is to be by 0 and by -1.
        return a.apply("Mod", b if safe else _special(b).where(1, b))


@operation
class FloorDivide(FloorDivision):
    """floor(a / b), such that a = b · (floor-divide a b) + (mod a b).

    Of integers by 0 it is 0, and it wraps around for the least integer by -1; of floats by 0 it is
    a / b.  The quotient of floats is as `numpy.floor_divide` computes it, from the exact remainder:
    1.0 by 0.1 is 9, since 0.1 in binary is more than a tenth.  ONNX: Div and the remainder.
    """

    name = "floor-divide"
    function = np.floor_divide
    example = ("(floor-divide (tensor (list 7 -7)) 2)", "[3 -4]")

    def of_floats(self, a: Term, b: Term) -> Term:
        remainder = a.apply("Mod", b, fmod=1)
        quotient = (a - remainder) / b
        quotient = _falls_short(remainder, b).where(quotient - 1, quotient)
        # It is whole but for the division's rounding.
        floor = quotient.apply("Floor")
        whole = (quotient - floor > 0.5).where(floor + 1, floor)
        return b.equals(0).where(a / b, whole)

    def of_integers(self, a: Term, b: Term, *, safe: bool) -> Term:
        if not safe:
            # By 0 and by -1 it is a · b.
            special = _special(b)
            a = a * special.where(b, 1)
            b = special.where(1, b)
        quotient = a / b
        remainder = a - quotient * b
        return quotient - _falls_short(remainder, b).cast(a.dtype)


def _special(divisor: Term) -> Term:
    """Whether an integer divisor may trap."""
    return divisor.equals(0) | divisor.equals(-1)


def _falls_short(remainder: Term, divisor: Term) -> Term:
    """Whether a quotient cut towards zero lies above its floor."""
    return ~remainder.equals(0) & ((remainder < 0) ^ (divisor < 0))
