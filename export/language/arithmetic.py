"""Arithmetic on numbers alone: the meaning of `+`, `<`, `sqrt` … where no tensor takes part.

Whole numbers stay whole, and are those of 64 bits; floats are those of IEEE 754 in 64 bits.  A
float that grows too large becomes `inf`; a whole number that does is E-VALUE-001, as is a division
by zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from sexpgpu.export.language.arguments import as_integer, as_number
from sexpgpu.export.language.equality import equal
from sexpgpu.export.language.values import Builtin, Call
from sexpgpu.export.language.words import INTEGER_MAXIMUM, INTEGER_MINIMUM

Number: TypeAlias = int | float
#: Takes the call and its arguments, and raises E-TYPE-001 for one that is no number.
Compute: TypeAlias = Callable[[Call, Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class NumberFunction:
    """An operation on numbers: its parameters, what it computes, and a line about it."""

    signature: str
    compute: Compute
    about: str

    def function(
        self, call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]
    ) -> object:
        """`compute` as a builtin is called; there are no keyword arguments."""
        return self.compute(call, positional)


def checked(call: Call, value: Number) -> Number:
    """The number: E-VALUE-001 when it is whole and beyond 64 bits."""
    if type(value) is int and not INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM:
        raise call.error(
            "E-VALUE-001",
            f"`{call.name}` gives a whole number beyond 64 bits",
            expected="a result from -2^63 to 2^63 - 1",
            help="compute with floats: `1.0` is one",
        )
    return value


def add_numbers(call: Call, values: Sequence[Any]) -> Number:
    """The sum; 0 of nothing."""
    total: Number = 0
    for index, value in enumerate(values):
        total = checked(call, total + as_number(call, value, index))
    return total


def multiply_numbers(call: Call, values: Sequence[Any]) -> Number:
    """The product; 1 of nothing."""
    product: Number = 1
    for index, value in enumerate(values):
        product = checked(call, product * as_number(call, value, index))
    return product


def subtract_numbers(call: Call, values: Sequence[Any]) -> Number:
    """The first less all others; of one number its negative."""
    first = as_number(call, values[0], 0)
    if len(values) == 1:
        return checked(call, -first)
    for index, value in enumerate(values[1:], 1):
        first = checked(call, first - as_number(call, value, index))
    return first


def divide_numbers(call: Call, values: Sequence[Any]) -> Number:
    """The first by all others; whole numbers give one where the quotient is exact."""
    if len(values) == 1:
        return _quotient(call, 1, as_number(call, values[0], 0), 0)
    first = as_number(call, values[0], 0)
    for index, value in enumerate(values[1:], 1):
        first = _quotient(call, first, as_number(call, value, index), index)
    return first


def _quotient(call: Call, a: Number, b: Number, which: int) -> Number:
    _refuse_zero(call, b, which)
    if type(a) is int and type(b) is int and a % b == 0:
        return checked(call, a // b)
    return a / b


def _refuse_zero(call: Call, divisor: Number, which: int) -> None:
    if divisor == 0:
        raise call.error("E-VALUE-001", f"`{call.name}` divides by zero", which)


def modulo_numbers(call: Call, values: Sequence[Any]) -> Number:
    """The remainder of a division that rounds down: it has the sign of the divisor."""
    a, b = as_number(call, values[0], 0), as_number(call, values[1], 1)
    _refuse_zero(call, b, 1)
    if isinstance(a, float) and math.isinf(a):
        return math.nan
    return a % b


def floor_divide_numbers(call: Call, values: Sequence[Any]) -> int:
    """The whole quotient, rounded down, of two whole numbers."""
    a, b = as_integer(call, values[0], 0), as_integer(call, values[1], 1)
    _refuse_zero(call, b, 1)
    return int(checked(call, a // b))


def power_numbers(call: Call, values: Sequence[Any]) -> Number:
    """The power; whole for whole numbers, unless the exponent is negative."""
    base, exponent = as_number(call, values[0], 0), as_number(call, values[1], 1)
    if type(base) is int and type(exponent) is int and exponent >= 0:
        # Anything but -1, 0 and 1 leaves 64 bits before the exponent reaches 64.
        if abs(base) > 1 and exponent > 64:
            exponent = 65
        elif abs(base) <= 1:
            exponent = min(exponent, 2 + exponent % 2)
        return checked(call, base**exponent)
    if base == 0 and exponent < 0:
        raise call.error("E-VALUE-001", "a negative power of zero", 1)
    if base < 0 and not float(exponent).is_integer() and math.isfinite(exponent):
        raise call.error("E-VALUE-001", "a fractional power of a negative number", 0)
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf


def smallest_number(call: Call, values: Sequence[Any]) -> Number:
    """The smallest of one or more numbers; nan when one of them is."""
    return _extreme(call, values, min)


def largest_number(call: Call, values: Sequence[Any]) -> Number:
    """The largest of one or more numbers; nan when one of them is."""
    return _extreme(call, values, max)


def _extreme(call: Call, values: Sequence[Any], choose: Callable[[list[Number]], Number]) -> Number:
    numbers = [as_number(call, value, index) for index, value in enumerate(values)]
    nans = [number for number in numbers if number != number]
    return nans[0] if nans else choose(numbers)


def absolute_number(call: Call, values: Sequence[Any]) -> Number:
    """The number without its sign."""
    return checked(call, abs(as_number(call, values[0], 0)))


def sign_of_number(call: Call, values: Sequence[Any]) -> Number:
    """-1, 0 or 1, whole for a whole number; nan for nan."""
    value = as_number(call, values[0], 0)
    if isinstance(value, float):
        return value if value != value or value == 0 else math.copysign(1.0, value)
    return (value > 0) - (value < 0)


def _rounding(round_number: Callable[[float], int]) -> Compute:
    def function(call: Call, values: Sequence[Any]) -> Number:
        value = as_number(call, values[0], 0)
        if isinstance(value, float) and not math.isfinite(value):
            raise call.error("E-VALUE-001", f"`{call.name}` of {value} is no whole number", 0)
        return checked(call, round_number(value))

    return function


def _real(
    compute: Callable[[float], float], defined: Callable[[float], bool], domain: str
) -> Compute:
    """A function of one number that gives a float, where it is defined."""

    def function(call: Call, values: Sequence[Any]) -> float:
        value = float(as_number(call, values[0], 0))
        if value != value:
            return value
        if not defined(value):
            raise call.error(
                "E-VALUE-001", f"`{call.name}` is not defined there", 0, expected=domain
            )
        try:
            return compute(value)
        except OverflowError:
            return math.inf

    return function


def _comparing(holds: Callable[[Number, Number], bool]) -> Compute:
    def function(call: Call, values: Sequence[Any]) -> bool:
        numbers = [as_number(call, value, index) for index, value in enumerate(values)]
        return all(holds(a, b) for a, b in pairwise(numbers))

    return function


def equal_values(call: Call, values: Sequence[Any]) -> bool:
    """Whether all values, of any kind, are equal."""
    return all(equal(call.evaluator, a, b, call.span) for a, b in pairwise(values))


def different_values(call: Call, values: Sequence[Any]) -> bool:
    """Whether two values, of any kind, are not equal."""
    return not equal(call.evaluator, values[0], values[1], call.span)


def _always(value: float) -> bool:
    return True


_VARIADIC = "(&rest numbers)"
_FIRST = "(x &rest numbers)"
_PAIR = "(x y)"
_CHAIN = "(x y &rest numbers)"

NUMBER_FUNCTIONS: Mapping[str, NumberFunction] = {
    "+": NumberFunction(_VARIADIC, add_numbers, "the sum"),
    "-": NumberFunction(_FIRST, subtract_numbers, "the difference; of one number its negative"),
    "*": NumberFunction(_VARIADIC, multiply_numbers, "the product"),
    "/": NumberFunction(_FIRST, divide_numbers, "the quotient, whole where it is exact"),
    "mod": NumberFunction(_PAIR, modulo_numbers, "the remainder, with the sign of y"),
    "quotient": NumberFunction(_PAIR, floor_divide_numbers, "the whole quotient, rounded down"),
    "pow": NumberFunction(_PAIR, power_numbers, "x to the power y"),
    "min": NumberFunction(_FIRST, smallest_number, "the smallest"),
    "max": NumberFunction(_FIRST, largest_number, "the largest"),
    "minimum": NumberFunction(_PAIR, smallest_number, "the smaller"),
    "maximum": NumberFunction(_PAIR, largest_number, "the larger"),
    "neg": NumberFunction("(x)", subtract_numbers, "the negative"),
    "abs": NumberFunction("(x)", absolute_number, "the absolute value"),
    "sign": NumberFunction("(x)", sign_of_number, "-1, 0 or 1"),
    "floor": NumberFunction("(x)", _rounding(math.floor), "rounded down to a whole number"),
    "ceil": NumberFunction("(x)", _rounding(math.ceil), "rounded up to a whole number"),
    "round": NumberFunction("(x)", _rounding(round), "the nearest whole number, ties to even"),
    "sqrt": NumberFunction("(x)", _real(math.sqrt, lambda x: x >= 0, "x ≥ 0"), "the square root"),
    "exp": NumberFunction("(x)", _real(math.exp, _always, ""), "e to the power x"),
    "log": NumberFunction(
        "(x)", _real(math.log, lambda x: x > 0, "x > 0"), "the logarithm to base e"
    ),
    "sin": NumberFunction("(x)", _real(math.sin, math.isfinite, "a finite number"), "the sine"),
    "cos": NumberFunction("(x)", _real(math.cos, math.isfinite, "a finite number"), "the cosine"),
    "tanh": NumberFunction("(x)", _real(math.tanh, _always, ""), "the hyperbolic tangent"),
    "=": NumberFunction(_CHAIN, equal_values, "whether all values are equal"),
    "!=": NumberFunction(_PAIR, different_values, "whether two values are not equal"),
    "<": NumberFunction(_CHAIN, _comparing(lambda a, b: a < b), "whether each is below the next"),
    "<=": NumberFunction(_CHAIN, _comparing(lambda a, b: a <= b), "whether none exceeds the next"),
    ">": NumberFunction(_CHAIN, _comparing(lambda a, b: a > b), "whether each is above the next"),
    ">=": NumberFunction(
        _CHAIN, _comparing(lambda a, b: a >= b), "whether each is at least the next"
    ),
}


def number_builtins() -> dict[str, Builtin]:
    """The operations as builtins of a language without tensors."""
    return {
        name: Builtin(name, number.signature, number.function, number.about)
        for name, number in NUMBER_FUNCTIONS.items()
    }
