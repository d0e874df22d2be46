"""The library's strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sexpgpu.export.language.arguments import as_list, as_string
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.values import Builtin, Call, show


def make_string(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """The values as text, joined: strings as they are, all else as it is shown."""
    return text_of(call, positional)


def show_value(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """The value as it is written in a program."""
    return _bounded(call, [show(positional[0], call.evaluator.limits.characters)], "")


def join_strings(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """The strings of a list with a separator between them."""
    separator = as_string(call, positional[0], 0)
    strings = [as_string(call, item, 1) for item in as_list(call, positional[1], 1)]
    return _bounded(call, strings, separator)


def split_string(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """The parts of a string between the separators."""
    text, separator = as_string(call, positional[0], 0), as_string(call, positional[1], 1)
    if not separator:
        raise call.error("E-VALUE-001", "the separator is empty", 1)
    count = text.count(separator) + 1
    call.evaluator.check_length(count, call.span)
    call.evaluator.charge(count + len(text) // 8, call.span)
    return tuple(text.split(separator))


def name_of(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """The name of a keyword as a string."""
    if isinstance(positional[0], Keyword):
        return positional[0].name
    raise call.wrong_kind(positional[0], 0, "a keyword")


def text_of(call: Call, values: Sequence[Any]) -> str:
    """The values as text, joined; E-LIMIT-003 when it is too long."""
    limit = call.evaluator.limits.characters
    return _bounded(call, [v if type(v) is str else show(v, limit) for v in values], "")


def _bounded(call: Call, strings: Sequence[str], separator: str) -> str:
    limit = call.evaluator.limits.characters
    total = sum([len(string) for string in strings]) + len(separator) * max(0, len(strings) - 1)
    if total > limit:
        raise call.error(
            "E-LIMIT-003", "the string is too long", expected=f"at most {limit:,} characters"
        )
    call.evaluator.charge(len(strings) + total // 8, call.span)
    return separator.join(strings)


def string_builtins() -> dict[str, Builtin]:
    """The functions of this module, by name."""
    table = [
        Builtin("str", "(&rest values)", make_string, "the values as text, joined"),
        Builtin("show", "(value)", show_value, "the value as it is written in a program"),
        Builtin("join-strings", "(separator strings)", join_strings,
                "the strings of a list with a separator between them"),
        Builtin("split-string", "(string separator)", split_string,
                "the parts of a string between the separators"),
        Builtin("name-of", "(keyword)", name_of, "the name of a keyword as a string"),
    ]  # fmt: skip
    return {builtin.name: builtin for builtin in table}
