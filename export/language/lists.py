"""The library's lists: making, reading and joining them, and functions over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sexpgpu.export.language.arguments import as_index, as_integer, as_list, as_number
from sexpgpu.export.language.arithmetic import add_numbers, largest_number, smallest_number
from sexpgpu.export.language.equality import equal
from sexpgpu.export.language.signature import keyword_names, split_keywords
from sexpgpu.export.language.values import Builtin, Call, Function, portray

Positional = Sequence[Any]
Keywords = Mapping[str, Any]


def make_list(call: Call, positional: Positional, keywords: Keywords) -> object:
    return tuple(positional)


def make_range(call: Call, positional: Positional, keywords: Keywords) -> object:
    numbers = [as_integer(call, value, index) for index, value in enumerate(positional)]
    if len(numbers) == 3 and numbers[2] == 0:
        raise call.error("E-VALUE-001", "a range cannot step by 0", 2)
    start, end = (0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
    step = numbers[2] if len(numbers) == 3 else 1
    # The length of a Python range is bounded; ours is not yet checked.
    length = max(0, -(-(end - start) // step))
    _charge(call, length)
    return tuple(range(start, end, step))


def repeat(call: Call, positional: Positional, keywords: Keywords) -> object:
    count = as_integer(call, positional[1], 1)
    if count < 0:
        raise call.error("E-VALUE-001", "a value cannot be repeated so often", 1, came=str(count))
    _charge(call, count)
    return (positional[0],) * count


def nth(call: Call, positional: Positional, keywords: Keywords) -> object:
    items = as_list(call, positional[0], 0)
    return items[as_index(call, positional[1], 1, len(items))]


def first(call: Call, positional: Positional, keywords: Keywords) -> object:
    return _not_empty(call, positional[0])[0]


def last(call: Call, positional: Positional, keywords: Keywords) -> object:
    return _not_empty(call, positional[0])[-1]


def rest(call: Call, positional: Positional, keywords: Keywords) -> object:
    items = _not_empty(call, positional[0])
    _charge_copy(call, len(items))
    return items[1:]


def sublist(call: Call, positional: Positional, keywords: Keywords) -> object:
    items = as_list(call, positional[0], 0)
    bounds = [as_integer(call, value, index) for index, value in enumerate(positional) if index]
    for index, bound in enumerate(bounds, 1):
        if not -len(items) <= bound <= len(items):
            raise call.error(
                "E-VALUE-001",
                f"{bound} is outside a list of {len(items)}",
                index,
                expected=f"a place from 0 to {len(items)}, or from the end below 0",
            )
    _charge_copy(call, len(items))
    return items[slice(*bounds)] if len(bounds) == 2 else items[bounds[0] :]


def length(call: Call, positional: Positional, keywords: Keywords) -> object:
    value = positional[0]
    if isinstance(value, (tuple, str)):
        return len(value)
    help = "its shape is `(shape x)`" if getattr(value, "is_tensor", False) else None
    raise call.wrong_kind(value, 0, "a list or a string", help)


def is_empty(call: Call, positional: Positional, keywords: Keywords) -> object:
    return length(call, positional, keywords) == 0


def reverse(call: Call, positional: Positional, keywords: Keywords) -> object:
    items = as_list(call, positional[0], 0)
    _charge_copy(call, len(items))
    return items[::-1]


def concat_lists(call: Call, positional: Positional, keywords: Keywords) -> object:
    lists = [as_list(call, value, index) for index, value in enumerate(positional)]
    return _join(call, lists)


def append(call: Call, positional: Positional, keywords: Keywords) -> object:
    return _join(call, [as_list(call, positional[0], 0), tuple(positional[1:])])


def zip_lists(call: Call, positional: Positional, keywords: Keywords) -> object:
    lists = _same_length(call, positional, 0)
    _charge(call, len(lists[0]))
    return tuple(zip(*lists, strict=True))


def enumerate_list(call: Call, positional: Positional, keywords: Keywords) -> object:
    items = as_list(call, positional[0], 0)
    _charge(call, len(items))
    return tuple(enumerate(items))


def map_lists(call: Call, positional: Positional, keywords: Keywords) -> object:
    function, lists = positional[0], _same_length(call, positional[1:], 1)
    apply, span = call.evaluator.apply, call.span_of(0)
    _charge(call, len(lists[0]))
    return tuple([apply(function, values, None, span) for values in zip(*lists, strict=True)])


def filter_list(call: Call, positional: Positional, keywords: Keywords) -> object:
    function, items = positional[0], as_list(call, positional[1], 1)
    return tuple([item for item in items if _holds(call, function, item)])


def fold(call: Call, positional: Positional, keywords: Keywords) -> object:
    function, value, items = positional[0], positional[1], as_list(call, positional[2], 2)
    apply, span = call.evaluator.apply, call.span_of(0)
    for item in items:
        value = apply(function, (value, item), None, span)
    return value


def every(call: Call, positional: Positional, keywords: Keywords) -> object:
    # A loop, and not `all`: C code that calls back into the program takes of Python's C stack.
    for item in as_list(call, positional[1], 1):  # noqa: SIM110
        if not _holds(call, positional[0], item):
            return False
    return True


def some(call: Call, positional: Positional, keywords: Keywords) -> object:
    for item in as_list(call, positional[1], 1):  # noqa: SIM110
        if _holds(call, positional[0], item):
            return True
    return False


def apply_function(call: Call, positional: Positional, keywords: Keywords) -> object:
    function = positional[0]
    items = as_list(call, positional[-1], len(positional) - 1)
    _charge_copy(call, len(items))
    arguments = [*positional[1:-1], *items]
    split = split_keywords(getattr(function, "signature", None), arguments)
    name = function.name if isinstance(function, (Builtin, Function)) else "apply"
    names = keyword_names(arguments, split, name, call.span)
    named = dict(zip(names, arguments[split + 1 :: 2], strict=True))
    return call.evaluator.apply(function, arguments[:split], named, call.span)


def index_of(call: Call, positional: Positional, keywords: Keywords) -> object:
    for index, item in enumerate(as_list(call, positional[0], 0)):
        call.evaluator.charge(1, call.span)
        if equal(call.evaluator, item, positional[1], call.span):
            return index
    return None


def sum_list(call: Call, positional: Positional, keywords: Keywords) -> object:
    return add_numbers(call, _numbers(call, positional[0]))


def min_list(call: Call, positional: Positional, keywords: Keywords) -> object:
    _not_empty(call, positional[0])
    return smallest_number(call, _numbers(call, positional[0]))


def max_list(call: Call, positional: Positional, keywords: Keywords) -> object:
    _not_empty(call, positional[0])
    return largest_number(call, _numbers(call, positional[0]))


def sort_list(call: Call, positional: Positional, keywords: Keywords) -> object:
    items = as_list(call, positional[0], 0)
    _charge(call, len(items) * max(1, len(items).bit_length()))
    if items and isinstance(items[0], str):
        for item in items:
            if not isinstance(item, str):
                raise call.wrong_kind(item, 0, "strings alone, or numbers alone")
        return tuple(sorted(items))
    numbers = _numbers(call, items)
    if any(number != number for number in numbers):
        raise call.error("E-VALUE-001", "nan has no place in an order", 0)
    return tuple(sorted(numbers))


def _numbers(call: Call, value: object) -> list[int | float]:
    items = as_list(call, value, 0)
    call.evaluator.charge(len(items), call.span)
    return [as_number(call, item, 0) for item in items]


def _holds(call: Call, function: object, item: object) -> bool:
    value = call.evaluator.apply(function, (item,), None, call.span_of(0))
    return call.evaluator.truth(value, call.span_of(0), call.name)


def _not_empty(call: Call, value: object) -> tuple[Any, ...]:
    items = as_list(call, value, 0)
    if not items:
        raise call.error("E-VALUE-001", f"`{call.name}` of an empty list", 0)
    return items


def _same_length(call: Call, values: Positional, offset: int) -> list[tuple[Any, ...]]:
    lists = [as_list(call, value, index + offset) for index, value in enumerate(values)]
    for index, items in enumerate(lists):
        if len(items) != len(lists[0]):
            raise call.error(
                "E-VALUE-001",
                f"`{call.name}` takes lists of one length",
                index + offset,
                came=f"{portray(lists[0])}, and {portray(items)}",
            )
    return lists


def _join(call: Call, lists: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    total = sum([len(items) for items in lists])
    call.evaluator.check_length(total, call.span)
    _charge_copy(call, total)
    joined: list[Any] = []
    for items in lists:
        joined.extend(items)
    return tuple(joined)


def _charge(call: Call, count: int) -> None:
    """For a list of so many new elements."""
    call.evaluator.check_length(count, call.span)
    call.evaluator.charge(count, call.span)


def _charge_copy(call: Call, count: int) -> None:
    """For a list of so many elements that exist already, which is cheaper."""
    call.evaluator.charge(count >> 2, call.span)


def list_builtins() -> dict[str, Builtin]:
    """The functions of this module, by name."""
    table = [
        Builtin("list", "(&rest values)", make_list, "a list of the values"),
        Builtin("range", "(start-or-end &optional end step)", make_range,
                "whole numbers from 0, or from the start, up to before the end"),
        Builtin("repeat", "(value count)", repeat, "a list of one value, so many times"),
        Builtin("nth", "(list index)", nth, "an element; -1 is the last"),
        Builtin("first", "(list)", first, "the first element"),
        Builtin("last", "(list)", last, "the last element"),
        Builtin("rest", "(list)", rest, "all elements but the first"),
        Builtin("sublist", "(list start &optional end)", sublist,
                "the elements from a place to before another"),
        Builtin("len", "(list-or-string)", length, "how many elements or characters"),
        Builtin("empty?", "(list-or-string)", is_empty, "whether there are none"),
        Builtin("reverse", "(list)", reverse, "the elements backwards"),
        Builtin("concat-lists", "(&rest lists)", concat_lists, "the elements of all lists"),
        Builtin("append", "(list &rest values)", append, "the list with values at its end"),
        Builtin("zip", "(list &rest lists)", zip_lists, "lists of the elements at one place"),
        Builtin("enumerate", "(list)", enumerate_list, "lists of a place and its element"),
        Builtin("map", "(function list &rest lists)", map_lists,
                "the function's values for the elements of one or more lists"),
        Builtin("filter", "(function list)", filter_list,
                "the elements for which the function is true"),
        Builtin("fold", "(function initial list)", fold,
                "the function of the value so far and an element, from left to right"),
        Builtin("every?", "(function list)", every, "whether the function holds for all elements"),
        Builtin("some?", "(function list)", some, "whether the function holds for an element"),
        Builtin("apply", "(function argument &rest arguments)", apply_function,
                "the function called with the arguments; the last is a list of more, where keywords"
                " count as written"),
        Builtin("index-of", "(list value)", index_of, "where the first equal element is, or nil"),
        Builtin("sum-list", "(numbers)", sum_list, "the sum of a list of numbers"),
        Builtin("min-list", "(numbers)", min_list, "the smallest of a list of numbers"),
        Builtin("max-list", "(numbers)", max_list, "the largest of a list of numbers"),
        Builtin("sort-list", "(list)", sort_list, "numbers or strings in ascending order"),
    ]  # fmt: skip
    return {builtin.name: builtin for builtin in table}
