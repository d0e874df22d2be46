"""Forms of a program as they are built, and their text as a person would lay it out.

An atom is a string that stands as it is.  A call is a list whose first item is its head; keywords
are items that begin with a colon, each followed by its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from sexpgpu.export.language.data import write_literal

Form: TypeAlias = "str | Sequence[Form]"

WIDTH = 100


def atom(value: int | float | str | bool | None) -> str:
    """A value as a program writes it: 1e-5, "text", true, nil."""
    text = write_literal(value)
    if isinstance(value, float) and "e" in text:
        digits, _, exponent = text.partition("e")
        return f"{digits}e{int(exponent)}"
    return text


def call(head: str, *items: Form, **options: Form | int | float | bool | None) -> list[Form]:
    """A call with those of the keyword options that are not None; `_` in their names is `-`."""
    form: list[Form] = [head, *items]
    for key, value in options.items():
        if value is not None:
            plain = isinstance(value, bool | int | float)
            form += [f":{key.replace('_', '-')}", atom(value) if plain else value]  # type: ignore[arg-type, list-item]
    return form


def flat(form: Form) -> str:
    """The form on one line."""
    return form if isinstance(form, str) else f"({' '.join(flat(item) for item in form)})"


def lay_out(form: Form, column: int = 0, closing: int = 0) -> str:
    """The form's text, to stand at a column, with so many brackets closing behind it."""
    text = flat(form)
    if isinstance(form, str) or not form:
        return text
    if column + len(text) + closing <= WIDTH and not _is_tall(form):
        return text
    head = form[0]
    if head in _HEADERS:
        return _sections(form, _HEADERS[str(head)], column, closing)
    if head == "let":
        return _let(form, column, closing)
    if head == "parts":
        return _pairs("(parts ", form[1:], column, closing)
    if _is_table(form):
        return f"(list\n{' ' * (column + 2)}" + _pairs("", form[1:], column + 2, closing)
    return _call(form, column, closing)


#: Forms with a header, of so many items, and a body below it.
_HEADERS = {"defmodel": 3, "for": 2, "apply": 2, "def": 2, "defn": 3, "fn": 2}


def _is_tall(form: Form) -> bool:
    """Whether a form is laid out over lines though it would fit on one."""
    if isinstance(form, str) or not form:
        return False
    return form[0] in ("defmodel", "parts", "let") or any(map(_is_tall, form[1:]))


def _is_table(form: Form) -> bool:
    """Whether it is a list of strings, which are laid out in pairs."""
    return form[0] == "list" and all(isinstance(i, str) and i[0] == '"' for i in form[1:])


def _sections(form: Sequence[Form], first: int, column: int, closing: int) -> str:
    """The first items on the line of the head, each of the others on one of its own."""
    text = "(" + " ".join(flat(item) for item in form[:first])
    for index, item in enumerate(form[first:], first + 1):
        after = closing + 1 if index == len(form) else 0
        text += f"\n{' ' * (column + 2)}" + lay_out(item, column + 2, after)
    return text + ")"


def _let(form: Sequence[Form], column: int, closing: int) -> str:
    bindings, body = form[1:]
    assert not isinstance(bindings, str)
    start = _pairs("(let (", bindings, column, 1)
    return f"{start}\n{' ' * (column + 2)}{lay_out(body, column + 2, closing + 1)})"


def _pairs(opening: str, items: Sequence[Form], column: int, closing: int) -> str:
    """Names and values, a pair on a line, the values below one another."""
    names = [flat(item) for item in items[::2]]
    width = max(map(len, names), default=0)
    start = column + len(opening)
    lines = []
    for index, (label, value) in enumerate(zip(names, items[1::2], strict=True), 1):
        after = closing + 1 if index == len(names) else 0
        lines.append(f"{label:<{width}} {lay_out(value, start + width + 1, after)}")
    return opening + f"\n{' ' * start}".join(lines) + ")"


def _call(form: Sequence[Form], column: int, closing: int) -> str:
    """A call over several lines: calls among its arguments stand on their own, others fill."""
    lines, current = list[str](), "(" + flat(form[0])
    pieces = list(_pieces(form[1:]))
    calls = [p[0] for p in pieces if len(p) == 1 and not isinstance(p[0], str)]
    has_blocks = any(len(call) > 2 for call in calls)
    for index, piece in enumerate(pieces, 1):
        after = closing + 1 if index == len(pieces) else 0
        label, value = f"{piece[0]} " if len(piece) == 2 else "", piece[-1]
        text = label + flat(value)
        start = column + (2 if lines else 0) + len(current) + 1
        is_block = has_blocks and len(piece) == 1 and not isinstance(value, str)
        if current and (is_block or start + len(text) + after > WIDTH):
            lines.append(current)
            current = ""
        if not current:
            indent = column + 2 + (0 if _is_table(value) else len(label))
            text = label + lay_out(value, indent, after)
        current = f"{current} {text}" if current else text
        if is_block:
            lines.append(current)
            current = ""
    lines += [current] if current else []
    return f"\n{' ' * (column + 2)}".join(lines) + ")"


def _pieces(items: Sequence[Form]) -> Iterator[Sequence[Form]]:
    """Items by themselves, keywords with their values."""
    index = 0
    while index < len(items):
        item = items[index]
        length = 2 if isinstance(item, str) and item.startswith(":") else 1
        yield items[index : index + length]
        index += length
