"""Data are written as they are read."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.language.data import (
    Datum,
    Keyword,
    ListDatum,
    Literal,
    Symbol,
    quoted,
    write,
    write_string,
)
from sexpgpu.export.language.reader import read

names = st.from_regex(r"[a-zλ+*/<>=!?%&$^_-][a-zλ0-9+*/<>=!?%&.$^_-]{0,6}", fullmatch=True).filter(
    lambda name: (
        name not in ("true", "false", "nil", "inf", "nan", "-inf", "+inf")
        and not name.lstrip("+-")[:1].isdigit()
        and not name.lstrip("+-").startswith(".")
    )
)
values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
)
atoms: st.SearchStrategy[Datum] = (
    names.map(Symbol) | names.map(Keyword) | values.map(Literal)  # type: ignore[arg-type]
)
data = st.recursive(
    atoms,
    lambda inner: st.builds(
        lambda items, bracket: ListDatum(tuple(items), bracket),
        st.lists(inner, max_size=5),
        st.sampled_from("(["),
    ),
)


@given(data)
def test_what_is_written_is_read_back(datum: Datum) -> None:
    (again,) = read(write(datum), "t.sx")
    assert same(again, datum)


def same(a: Datum, b: Datum) -> bool:
    if isinstance(a, ListDatum) and isinstance(b, ListDatum):
        return (
            a.bracket == b.bracket
            and len(a.items) == len(b.items)
            and all(same(x, y) for x, y in zip(a.items, b.items, strict=True))
        )
    if isinstance(a, Literal) and isinstance(b, Literal):
        both_nan = isinstance(a.value, float) and isinstance(b.value, float)
        both_nan = both_nan and math.isnan(a.value) and math.isnan(b.value)  # type: ignore[arg-type]
        return type(a.value) is type(b.value) and (a.value == b.value or both_nan)
    return a == b


def test_symbols_and_keywords_are_equal_by_name() -> None:
    first, second = read("x x", "t.sx")
    assert first == second
    assert hash(first) == hash(second)
    assert Symbol("x") != Keyword("x")


def test_strings_escape_what_would_not_be_seen() -> None:
    assert write_string('a"\\\n\t\r\0\x07é\u00a0') == r'"a\"\\\n\t\r\0\u{7}é\u{a0}"'


def test_a_quoted_list_is_a_tuple_of_values() -> None:
    (datum,) = read('(a [1 nil] :b "c")', "t.sx")
    assert quoted(datum) == (Symbol("a"), (1, None), Keyword("b"), "c")
