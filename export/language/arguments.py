"""Taking the arguments of a builtin as the kinds that it needs.

Each function takes the call, an argument's value and which argument it is (position or keyword),
and raises E-TYPE-001 at that argument when its kind is another.
"""

from __future__ import annotations

from typing import Any

from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.values import Call

Which = int | str | None


def is_number(value: object) -> bool:
    """Whether a value is a number; booleans are none."""
    return type(value) is int or type(value) is float


def as_number(call: Call, value: object, which: Which) -> int | float:
    """The value, a number."""
    if type(value) is int or type(value) is float:
        return value
    raise call.wrong_kind(value, which, "a number", _number_help(call, value))


def as_integer(call: Call, value: object, which: Which) -> int:
    """The value, a whole number."""
    if type(value) is int:
        return value
    help = None
    if type(value) is float:
        help = "`floor`, `ceil` and `round` give whole numbers"
    raise call.wrong_kind(value, which, "a whole number", help)


def as_list(call: Call, value: object, which: Which) -> tuple[Any, ...]:
    """The value, a list."""
    if isinstance(value, tuple):
        return value
    help = None
    if getattr(value, "is_tensor", False):
        help = "a tensor is no list: `scan` loops along an axis, `take` and `slice` read parts"
    elif type(value) is int:
        help = "numbers from 0 are `(range n)`"
    raise call.wrong_kind(value, which, "a list", help)


def as_plist(call: Call, value: object, which: Which) -> tuple[Any, ...]:
    """The value, a list that alternates keywords and values."""
    if not isinstance(value, tuple):
        raise call.wrong_kind(value, which, "a plist: `(list :key value …)`")
    call.evaluator.charge(len(value) >> 3, call.span)
    if len(value) % 2 or not all(type(key) is Keyword for key in value[::2]):
        raise call.wrong_kind(value, which, "a list that alternates keywords and values")
    return value


def as_string(call: Call, value: object, which: Which) -> str:
    """The value, a string."""
    if type(value) is str:
        return value
    raise call.wrong_kind(value, which, "a string", "`str` makes a string of any value")


def as_keyword(call: Call, value: object, which: Which) -> Keyword:
    """The value, a keyword."""
    if type(value) is Keyword:
        return value
    raise call.wrong_kind(value, which, "a keyword, such as `:name`")


def as_index(call: Call, value: object, which: Which, length: int) -> int:
    """The value, an index into something so long; negative ones count from the end.

    Errors: E-VALUE-001 when there is no such element.
    """
    index = as_integer(call, value, which)
    if not -length <= index < length:
        elements = "1 element" if length == 1 else f"{length} elements"
        raise call.error(
            "E-VALUE-001",
            f"there is no element {index} in a list of {elements}",
            which,
            expected=f"an index from 0 to {length - 1}" if length else "a list that is not empty",
        )
    return index


def _number_help(call: Call, value: object) -> str | None:
    if call.name == "+" and isinstance(value, str):
        return "strings are joined by `str`"
    if call.name == "+" and isinstance(value, tuple):
        return "lists are joined by `concat-lists`"
    return None
