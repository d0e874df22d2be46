"""Powers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.elementwise import BINARY_NUMBER, ElementwiseFormula
from sexpgpu.export.operations.operation import operation

#: Up to here an exponent of floats that is known becomes products.
LARGEST_PRODUCT = 4


@operation
class Power(ElementwiseFormula):
    """a to the power b.

    Integers wrap around and every bit of theirs is exact.  Floats follow `numpy.power`: a negative
    a to a power that is not whole is NaN, and anything to the power 0 is 1.  ONNX: Pow; products
    where b is a known whole number, and over integers, whose Pow some runtimes round to f64.
    """

    name = "pow"
    signature = BINARY_NUMBER
    constraints = (
        "An integer to a negative power is 0, but for 1, which gives 1, and -1, which gives 1 or "
        "-1: the quotient 1 / a^-b cut towards zero.",
    )
    example = ("(pow (tensor (list 1.0 2.0 3.0)) 2)", "[1.0 4.0 9.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        a, b = arrays
        if a.dtype.kind == "f":
            return np.asarray(np.power(a, b))
        # The powers of 1 and -1 depend on the last bit of the exponent alone.
        whole = np.power(a, np.where(b < 0, b & 1, b))
        return np.where((b < 0) & (np.abs(a) != 1), a.dtype.type(0), whole)

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        base, exponent = inputs
        known = _known(exponent, base)
        a = Term.of(onnx, base)
        if known is not None and (base.dtype.is_integer or known in range(2, LARGEST_PRODUCT + 1)):
            return [_product(a, int(known)).name]
        return [self.formula([a, Term.of(onnx, exponent)], attributes).name]

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        a, b = terms
        return a.apply("Pow", b) if a.dtype.is_float else _of_integers(a, b)


def _known(exponent: OnnxValue, base: OnnxValue) -> float | None:
    """The exponent where it is one constant number, not negative, that leaves the shape alone."""
    array = exponent.array
    if array is None or array.size != 1 or array.ndim > len(base.shape):
        return None
    value: float = array.reshape(()).item()
    return value if value > 0 else None


def _product(base: Term, exponent: int) -> Term:
    """The power by squaring, from the exponent's highest bit down."""
    result = base
    for bit in bin(exponent)[3:]:
        result = result * result
        if bit == "1":
            result = result * base
    return result


def _of_integers(base: Term, exponent: Term) -> Term:
    """By squaring, over every bit of the exponent but its sign."""
    power = base
    result = base.like(1)
    for bit in range(base.dtype.itemsize * 8 - 1):
        chosen = (exponent & (1 << bit)).equals(0)
        result = result * chosen.where(1, power)
        power = power * power
    vanishes = (exponent < 0) & ~abs(base).equals(1)
    return vanishes.where(0, result)
