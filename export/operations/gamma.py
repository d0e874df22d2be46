"""The complement of the error function, and the logarithm of the gamma function."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations import special
from sexpgpu.export.operations.elementwise import UNARY_FLOAT, ElementwiseFormula
from sexpgpu.export.operations.operation import operation


def _log_gamma(x: float) -> float:
    # What is a pole is an error in Python.
    return math.inf if x <= 0 and x.is_integer() else math.lgamma(x)


_each_erfc = np.frompyfunc(math.erfc, 1, 1)
_each_log_gamma = np.frompyfunc(_log_gamma, 1, 1)


@operation
class Erfc(ElementwiseFormula):
    """1 - erf(x), to full precision where erf is nearly 1.

    Twice the share of a normal distribution of variance 1/2 that lies beyond x.

    ONNX: the rational approximations of W. J. Cody (1969) and Exp.
    """

    name = "erfc"
    signature = UNARY_FLOAT
    example = ("(erfc (tensor (list 0.0)))", "[1.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        x = arrays[0]
        return np.asarray(_each_erfc(x.astype(np.float64))).astype(x.dtype)

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return special.erfc(terms[0])


# C. Lanczos, A precision approximation of the gamma function, SIAM J. Numer. Anal. 1 (1964), with
# g = 7 and the nine coefficients of P. Godfrey, which have a relative error of 1e-15.
_LANCZOS = 7
_LANCZOS_COEFFICIENTS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)


@operation
class LogGamma(ElementwiseFormula):
    """log |Γ(x)|, where Γ(n + 1) = n! for whole numbers; infinite at 0, -1, -2, ….

    ONNX: the approximation of C. Lanczos (1964), in f64, reflected where x is below 1/2.
    """

    name = "lgamma"
    signature = UNARY_FLOAT
    example = ("(lgamma (tensor (list 0.0)))", "[inf]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        x = arrays[0]
        return np.asarray(_each_log_gamma(x.astype(np.float64))).astype(x.dtype)

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        # What cancels near 1 and 2 has no digits to spare in f32.
        x = terms[0].cast(DType.F64)
        reflected = x < 0.5
        z = reflected.where(-x, x - 1)
        total = x.like(_LANCZOS_COEFFICIENTS[0])
        for number, coefficient in enumerate(_LANCZOS_COEFFICIENTS[1:], 1):
            total = total + coefficient / (z + number)
        t = z + (_LANCZOS + 0.5)
        found = (z + 0.5) * t.apply("Log") - t + total.apply("Log") + math.log(2 * math.pi) / 2
        sine = abs(((x - x.apply("Round")) * math.pi).apply("Sin"))
        found = reflected.where((math.pi / sine).apply("Log") - found, found)
        found = abs(x).equals(math.inf).where(x.like(math.inf), found)
        return found.cast(terms[0].dtype)
