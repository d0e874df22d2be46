"""Functions that ONNX runtimes lack, or have with too few digits, in operators that they have."""

from __future__ import annotations

import math

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.onnx.term import Term

_erf = np.frompyfunc(math.erf, 1, 1)


def erf_array(x: Array) -> Array:
    """The error function, in f64 and rounded; NumPy has none."""
    return np.asarray(_erf(x.astype(np.float64))).astype(x.dtype)


# Rational approximations of erf up to 0.46875 and of exp(x²)·erfc(x) beyond, to 18 digits:
# W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969),
# with the digits of his CALERF (netlib).  The third range, beyond 4, is for erfc: in erf the second
# has an error below 1e-16 there.
_CODY_LIMIT = 0.46875
_NEAR_NUMERATOR = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_NEAR_DENOMINATOR = (
    1.0,
    2.36012909523441209e1,
    2.44024637934444173e2,
    1.28261652607737228e3,
    2.84423683343917062e3,
)
_FAR_NUMERATOR = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_FAR_DENOMINATOR = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_TAIL_NUMERATOR = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_TAIL_DENOMINATOR = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)
_TAIL = 4.0
#: From here on erf is 1 in f64.
_ERF_SATURATES = 6.0


def erf(x: Term) -> Term:
    """The error function: the operator in f32, two rational approximations in f64."""
    if x.dtype is not DType.F64:
        return x.apply("Erf")
    square = x * x
    near = x * square.polynomial(_NEAR_NUMERATOR) / square.polynomial(_NEAR_DENOMINATOR)
    y = abs(x).apply("Min", _ERF_SATURATES)
    scaled = y.polynomial(_FAR_NUMERATOR) / y.polynomial(_FAR_DENOMINATOR)
    far = x.apply("Sign") * (1 - (-(y * y)).apply("Exp") * scaled)
    return (abs(x) <= _CODY_LIMIT).where(near, far)


#: From here on erfc is 0 in f64.
_ERFC_VANISHES = 30.0


def erfc(x: Term) -> Term:
    """1 - erf(x) by rational approximations, of which none subtracts from 1 where x is large."""
    size = abs(x)
    square = x * x
    near = 1 - x * square.polynomial(_NEAR_NUMERATOR) / square.polynomial(_NEAR_DENOMINATOR)
    y = size.apply("Min", _ERFC_VANISHES)
    middle = y.polynomial(_FAR_NUMERATOR) / y.polynomial(_FAR_DENOMINATOR)
    # 4 stands for what is less, which is not used: there a quotient by 0 would warn or stop.
    far = y.apply("Max", _TAIL)
    inverse = 1 / (far * far)
    quotient = inverse.polynomial(_TAIL_NUMERATOR) / inverse.polynomial(_TAIL_DENOMINATOR)
    tail = (1 / math.sqrt(math.pi) - inverse * quotient) / far
    # exp(-y²) as that of a number of few digits, whose square is exact, and of the rest.
    short = (y * 16).apply("Floor") / 16
    power = (-(short * short)).apply("Exp") * (-((y - short) * (y + short))).apply("Exp")
    beyond = power * (y > _TAIL).where(tail, middle)
    return (size <= _CODY_LIMIT).where(near, (x < 0).where(2 - beyond, beyond))


def expm1(x: Term) -> Term:
    """exp(x) - 1 as 2·t / (1 - t) with t = tanh(x/2), which loses no digit where x is near 0."""
    t = (x * 0.5).apply("Tanh")
    return (x < 0.5).where((t + t) / (1 - t), x.apply("Exp") - 1)


def log1p(x: Term) -> Term:
    """log(1 + x), corrected near 0 by what 1 + x rounds away.

    With w the rounded sum, log(1 + x) = log(w) + (x - (w - 1)) / w + O(x - (w - 1))².
    """
    w = x + 1
    log = w.apply("Log")
    return (abs(x) < 0.5).where(log + (x - (w - 1)) / w, log)


# π/2 in three parts, the first two of 33 bits, so that their product with a number of 20 bits is
# exact: S. B. Moshier and W. J. Cody's reduction, with the digits of fdlibm's e_rem_pio2.c.
_HALF_PI = (1.57079632673412561417e0, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_REDUCIBLE = 2.0**20


def tan(x: Term) -> Term:
    """The tangent: the operator in f32; in f64 sine by cosine of the rest by π/2.

    Near a pole the cosine itself has few digits, that of the rest has all.  From 2^20 on, where a
    unit in the last place of x is all that is left of the rest's digits, x is not reduced.
    """
    if x.dtype is not DType.F64:
        return x.apply("Tan")
    turns = (x * (2 / math.pi)).apply("Round")
    rest = x
    for part in _HALF_PI:
        rest = rest - turns * part
    reducible = abs(x) < _REDUCIBLE
    rest = reducible.where(rest, x)
    odd = reducible & ~((turns * 0.5).apply("Floor") * 2).equals(turns)
    sine, cosine = rest.apply("Sin"), rest.apply("Cos")
    return odd.where(-cosine, sine) / odd.where(sine, cosine)


# The approximation of atan by S. L. Moshier's Cephes (netlib), of a relative error below 2e-16 up
# to 0.66, to which larger numbers are brought by the angles π/2 and π/4.
_ATAN_NUMERATOR = (
    -8.750608600031904122785e-1,
    -1.615753718733365076637e1,
    -7.500855792314704667340e1,
    -1.228866684490136173410e2,
    -6.485021904942025371773e1,
)
_ATAN_DENOMINATOR = (
    1.0,
    2.485846490142306297962e1,
    1.650270098316988542046e2,
    4.328810604912902668951e2,
    4.853903996359136964868e2,
    1.945506571482613964425e2,
)
_ATAN_LIMIT = 0.66
_TAN_3_EIGHTHS = 2.41421356237309504880
#: What π/2 has beyond its f64.
_MORE_HALF_PI = 6.123233995736765886130e-17


def atan(x: Term) -> Term:
    """The inverse tangent: the operator in f32, a rational approximation in f64."""
    if x.dtype is not DType.F64:
        return x.apply("Atan")
    size = abs(x)
    steep, middle = size > _TAN_3_EIGHTHS, size > _ATAN_LIMIT
    # Infinity less 1, by itself and 1, would be no number.
    reduced = steep.where(-(1 / size), middle.where((size - 1) / (size + 1), size))
    square = reduced * reduced
    quotient = square.polynomial(_ATAN_NUMERATOR) / square.polynomial(_ATAN_DENOMINATOR)
    rest = reduced * (square * quotient) + reduced
    more = steep.where(_MORE_HALF_PI, middle.where(x.like(_MORE_HALF_PI / 2), 0.0))
    turned = steep.where(math.pi / 2, middle.where(x.like(math.pi / 4), 0.0))
    angle = turned + (rest + more)
    return (x < 0).where(-angle, angle)
