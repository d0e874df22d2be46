"""Logic on bool, and the same bit by bit on integers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import BOOLEANS, INTEGERS, Array
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.elementwise import ElementwiseFormula, NativeFunction
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.signature import Operand, signature

_BOOLEAN = signature(Operand("x", BOOLEANS))
_BOOLEANS = signature(Operand("a", BOOLEANS), Operand("b", BOOLEANS))
_INTEGER = signature(Operand("x", INTEGERS))
_INTEGERS = signature(Operand("a", INTEGERS), Operand("b", INTEGERS))


@operation
class LogicalAnd(NativeFunction):
    """Whether a and b are both true.  ONNX: And."""

    name = "logical-and"
    signature = _BOOLEANS
    function = np.logical_and
    operator = "And"
    example = ("(logical-and (tensor (list true false)) true)", "[true false]")


@operation
class LogicalOr(NativeFunction):
    """Whether a or b is true, or both.  ONNX: Or."""

    name = "logical-or"
    signature = _BOOLEANS
    function = np.logical_or
    operator = "Or"
    example = ("(logical-or (tensor (list true false)) false)", "[true false]")


@operation
class LogicalXor(NativeFunction):
    """Whether one of a and b is true, and one only.  ONNX: Xor."""

    name = "logical-xor"
    signature = _BOOLEANS
    function = np.logical_xor
    operator = "Xor"
    example = ("(logical-xor (tensor (list true false)) true)", "[false true]")


@operation
class LogicalNot(NativeFunction):
    """Whether x is false.  ONNX: Not."""

    name = "logical-not"
    signature = _BOOLEAN
    function = np.logical_not
    operator = "Not"
    example = ("(logical-not (tensor (list true false)))", "[false true]")


@operation
class BitwiseAnd(NativeFunction):
    """The bits that a and b both have; integers are two's complement.  ONNX: BitwiseAnd."""

    name = "bitwise-and"
    signature = _INTEGERS
    function = np.bitwise_and
    operator = "BitwiseAnd"
    example = ("(bitwise-and (tensor (list 12 -1)) 10)", "[8 10]")


@operation
class BitwiseOr(NativeFunction):
    """The bits that a or b has; integers are two's complement.  ONNX: BitwiseOr."""

    name = "bitwise-or"
    signature = _INTEGERS
    function = np.bitwise_or
    operator = "BitwiseOr"
    example = ("(bitwise-or (tensor (list 12 0)) 10)", "[14 10]")


@operation
class BitwiseXor(NativeFunction):
    """The bits that one of a and b has, and one only; two's complement.  ONNX: BitwiseXor."""

    name = "bitwise-xor"
    signature = _INTEGERS
    function = np.bitwise_xor
    operator = "BitwiseXor"
    example = ("(bitwise-xor (tensor (list 12 0)) 10)", "[6 10]")


@operation
class BitwiseNot(NativeFunction):
    """The bits that x has not, which is -x - 1.  ONNX: BitwiseNot."""

    name = "bitwise-not"
    signature = _INTEGER
    function = np.bitwise_not
    operator = "BitwiseNot"
    example = ("(bitwise-not (tensor (list 0 5)))", "[-1 -6]")


class Shift(ElementwiseFormula):
    """Shifts by a table of powers of two, since ONNX shifts no signed integers."""

    signature = signature(Operand("a", INTEGERS), Operand("count", INTEGERS))
    constraints = (
        "A count below 0, or as large as the dtype has bits or larger, moves every bit out.",
    )

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        a, count = terms
        bits = a.dtype.itemsize * 8
        within = (count >= 0) & (count < bits)
        # 2^(bits-1) is the least integer: as a factor it is right, as a divisor it is not used.
        powers = a.constant(
            np.left_shift(a.dtype.numpy.type(1), np.arange(bits)).astype(a.dtype.numpy)
        )
        power = powers.apply("Gather", within.where(count, 0))
        return self.shifted(a, power, count, within)

    @abstractmethod
    def shifted(self, a: Term, power: Term, count: Term, within: Term) -> Term:
        """The ONNX form, given 2^count where the count is within the dtype's bits."""


@operation
class ShiftLeft(Shift):
    """The bits of a moved up by `count`, zeros following.  ONNX: Mul by a power of two."""

    name = "shift-left"
    example = ("(shift-left (tensor (list 1 3)) 4)", "[16 48]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.left_shift(*arrays))

    def shifted(self, a: Term, power: Term, count: Term, within: Term) -> Term:
        return a * within.where(power, 0)


@operation
class ShiftRight(Shift):
    """The bits of a moved down by `count`, its sign following: floor(a / 2^count).

    ONNX: Div by a power of two, of a or, where a is negative, of its complement.
    """

    name = "shift-right"
    example = ("(shift-right (tensor (list 48 -5)) 1)", "[24 -3]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return np.asarray(np.right_shift(*arrays))

    def shifted(self, a: Term, power: Term, count: Term, within: Term) -> Term:
        sign = (a < 0).where(a.like(-1), 0)
        # A number without its sign has one bit less, so that the last count gives 0 as well.
        inner = within & (count < a.dtype.itemsize * 8 - 1)
        quotient = (a ^ sign) / inner.where(power, 1)
        return inner.where(quotient, 0) ^ sign
