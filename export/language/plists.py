"""The library's plists, lists that alternate keywords and values; and `get` for all with parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

from sexpgpu.export.language.arguments import as_index, as_keyword, as_list, as_plist
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.equality import equal
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.export.language.values import Builtin, Call
from sexpgpu.schemas.errors import SexpgpuError


@runtime_checkable
class HasMembers(Protocol):
    """A value whose parts `get` takes by keyword, such as a model."""

    def get_member(self, keyword: Keyword) -> object:
        """The part of that name; a SexpgpuError when there is none."""


_ABSENT = object()


def get(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """Of a plist by keyword, of a list by index, or of what has members by keyword."""
    value, key = positional[0], positional[1]
    has_default = len(positional) == 3
    if isinstance(value, HasMembers):
        return _member(call, value, positional)
    if not isinstance(value, tuple):
        raise call.wrong_kind(value, 0, "a plist, a list or a model")
    if type(key) is int:
        if has_default and not -len(value) <= key < len(value):
            return positional[2]
        return value[as_index(call, key, 1, len(value))]
    if type(key) is not Keyword:
        raise call.wrong_kind(key, 1, "a keyword of a plist, or an index of a list")
    plist = as_plist(call, value, 0)
    found = _find(plist, key)
    if found is not _ABSENT:
        return found
    if has_default:
        return positional[2]
    names = [item.name for item in plist[::2]]
    raise call.error(
        "E-VALUE-001",
        f"the plist has no `:{key.name}`",
        1,
        expected="one of " + " ".join([f":{name}" for name in names[:12]]) if names else None,
        help=did_you_mean(key.name, names, ":"),
    )


def _find(plist: Sequence[Any], key: Keyword) -> object:
    """The value of a keyword; where it stands twice, the first."""
    keys = plist[::2]
    return plist[2 * keys.index(key) + 1] if key in keys else _ABSENT


def _member(call: Call, value: HasMembers, positional: Sequence[Any]) -> object:
    key = as_keyword(call, positional[1], 1)
    try:
        return value.get_member(key)
    except SexpgpuError as error:
        if len(positional) == 3:
            return positional[2]
        error.span = error.span or call.span_of(1)
        raise


def assoc(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """A plist or list with other values for some keywords or indices."""
    pairs = positional[1:]
    if len(pairs) % 2:
        raise call.error("E-CALL-002", "the last key of `assoc` has no value", len(positional) - 1)
    if isinstance(positional[0], tuple) and pairs and type(pairs[0]) is int:
        items = list(as_list(call, positional[0], 0))
        for which, (index, value) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
            items[as_index(call, index, 1 + 2 * which, len(items))] = value
        call.evaluator.charge(len(items) >> 2, call.span)
        return tuple(items)
    for which, key in enumerate(pairs[::2]):
        as_keyword(call, key, 1 + 2 * which)
    return _updated(call, as_plist(call, positional[0], 0), pairs)


def merge(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """One plist of several; a later one's values win."""
    plist: tuple[Any, ...] = ()
    for index, value in enumerate(positional):
        plist = _updated(call, plist, as_plist(call, value, index))
    return plist


def _updated(call: Call, plist: Sequence[Any], pairs: Sequence[Any]) -> tuple[Any, ...]:
    values = dict(zip(plist[::2][::-1], plist[1::2][::-1], strict=True))
    # Written backwards so that of a keyword that stands twice the first counts, as for `get`.
    ordered = {key: values[key] for key in plist[::2]}
    ordered.update(zip(pairs[::2], pairs[1::2], strict=True))
    call.evaluator.check_length(2 * len(ordered), call.span)
    call.evaluator.charge(len(ordered), call.span)
    return tuple([item for pair in ordered.items() for item in pair])


def keys(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """The keywords of a plist, in order."""
    return as_plist(call, positional[0], 0)[::2]


def vals(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """The values of a plist, in order."""
    return as_plist(call, positional[0], 0)[1::2]


def contains(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
    """Whether a plist has a keyword, or a list an equal element."""
    items, wanted = as_list(call, positional[0], 0), positional[1]
    if type(wanted) is Keyword and is_plist(items):
        call.evaluator.charge(len(items) >> 3, call.span)
        return wanted in items[::2]
    for item in items:
        call.evaluator.charge(1, call.span)
        if equal(call.evaluator, item, wanted, call.span):
            return True
    return False


def is_plist(value: object) -> TypeGuard[tuple[Any, ...]]:
    """Whether a value alternates keywords and values, and is no empty list."""
    if not isinstance(value, tuple) or not value or len(value) % 2:
        return False
    return all(type(key) is Keyword for key in value[::2])


def plist_builtins() -> dict[str, Builtin]:
    """The functions of this module, by name."""
    table = [
        Builtin("get", "(plist-or-list key &optional default)", get,
                "the value of a keyword, or the element at an index"),
        Builtin("assoc", "(plist-or-list &rest keys-and-values)", assoc,
                "the plist with other values for some keywords"),
        Builtin("merge", "(&rest plists)", merge, "one plist of several; later values win"),
        Builtin("keys", "(plist)", keys, "the keywords of a plist"),
        Builtin("vals", "(plist)", vals, "the values of a plist"),
        Builtin("contains?", "(plist-or-list key-or-value)", contains,
                "whether a plist has a keyword, or a list an equal element"),
    ]  # fmt: skip
    return {builtin.name: builtin for builtin in table}
