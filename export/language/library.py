"""The library of a program without tensors, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sexpgpu.export.language.arguments import is_number
from sexpgpu.export.language.arithmetic import number_builtins
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.lists import list_builtins
from sexpgpu.export.language.plists import plist_builtins
from sexpgpu.export.language.strings import string_builtins, text_of
from sexpgpu.export.language.values import Builtin, Call, Function
from sexpgpu.export.language.values import Callable as CallableValue

Positional = Sequence[Any]
Keywords = Mapping[str, Any]


def library() -> dict[str, object]:
    """All names of the language core."""
    return {
        "pi": math.pi,
        **number_builtins(),
        **list_builtins(),
        **plist_builtins(),
        **string_builtins(),
        **general_builtins(),
    }


def negate(call: Call, positional: Positional, keywords: Keywords) -> object:
    """Whether a value is false or nil."""
    return not call.evaluator.truth(positional[0], call.span_of(0), "not")


def identity(call: Call, positional: Positional, keywords: Keywords) -> object:
    """The value itself."""
    return positional[0]


def raise_error(call: Call, positional: Positional, keywords: Keywords) -> object:
    """E-ASSERT-001 at the call, with the values as text."""
    raise call.error("E-ASSERT-001", text_of(call, positional))


def check_assertion(call: Call, positional: Positional, keywords: Keywords) -> object:
    """E-ASSERT-001 at the condition when it does not hold; else its value."""
    value = positional[0]
    if call.evaluator.truth(value, call.span_of(0), "assert"):
        return value
    message = text_of(call, positional[1:]) if len(positional) > 1 else "the assertion fails"
    raise call.error("E-ASSERT-001", message, 0)


def _predicate(name: str, kind: str, holds: Callable[[Any], bool]) -> Builtin:
    return Builtin(
        name,
        "(value)",
        lambda call, positional, keywords: holds(positional[0]),
        f"whether the value is {kind}",
    )


def _is_function(value: object) -> bool:
    return isinstance(value, (Builtin, Function, CallableValue))


def _is_tensor(value: object) -> bool:
    return bool(getattr(value, "is_tensor", False))


def general_builtins() -> dict[str, Builtin]:
    table = [
        Builtin("not", "(value)", negate, "whether the value is false or nil"),
        Builtin("identity", "(value)", identity, "the value itself"),
        Builtin("error", "(message &rest values)", raise_error, "end the program with a message"),
        Builtin("assert", "(condition &rest message)", check_assertion,
                "end the program with a message, unless the condition is true"),
        _predicate("number?", "a number", is_number),
        _predicate("integer?", "a whole number", lambda value: type(value) is int),
        _predicate("boolean?", "a boolean", lambda value: isinstance(value, bool)),
        _predicate("string?", "a string", lambda value: type(value) is str),
        _predicate("keyword?", "a keyword", lambda value: isinstance(value, Keyword)),
        _predicate("list?", "a list", lambda value: isinstance(value, tuple)),
        _predicate("nil?", "nil", lambda value: value is None),
        _predicate("function?", "a function or model", _is_function),
        _predicate("tensor?", "a tensor", _is_tensor),
    ]  # fmt: skip
    return {builtin.name: builtin for builtin in table}
