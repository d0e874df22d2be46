"""Text to data: spans, limits, and texts that nobody would write."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.language.data import Datum, Keyword, ListDatum, Literal, Symbol, write
from sexpgpu.export.language.reader import NESTING_LIMIT, SIZE_LIMIT, read
from sexpgpu.schemas.errors import SexpgpuError

PROGRAM = """; a program to mutate
(defknob window 16)
(def train (text "verses.txt" :window (+ window 1) :symbols 32))
#| a comment #| in a comment |# |#
(defn prepare (record)
  (let [t (get record :tokens)]
    (list :inputs  (slice t :axis 1 :to window) #;(dropped)
          :targets '(slice t 1.5e-3 -inf nan "a\\n\\u{41}"))))
"""


def refused(text: bytes | str) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as raised:
        read(text, "t.sx")
    return raised.value


def place(error: SexpgpuError) -> tuple[int, int, int]:
    assert error.span is not None
    return error.span.line, error.span.column, error.span.width


def test_every_datum_has_its_span() -> None:
    data = read('(a :b\n  [1 "two"] \'c)\nd', "t.sx")
    whole, d = data
    assert isinstance(whole, ListDatum)
    a, b, inner, quote = whole.items
    assert isinstance(inner, ListDatum)
    assert isinstance(quote, ListDatum)
    spans = {}
    for name, datum in [("whole", whole), ("a", a), ("b", b), ("inner", inner), ("d", d)]:
        assert datum.span is not None
        assert datum.span.source.name == "t.sx"
        spans[name] = (datum.span.line, datum.span.column, datum.span.width)
    # A list that goes on is underlined to the end of its first line.
    assert spans["whole"] == (1, 1, 5)
    assert spans["a"] == (1, 2, 1)
    assert spans["b"] == (1, 4, 2)
    assert spans["inner"] == (2, 3, 9)
    assert spans["d"] == (3, 1, 1)
    assert quote.span is not None
    assert (quote.span.column, quote.span.width) == (13, 2)
    two = inner.items[1]
    assert two.span is not None
    assert (two.span.column, two.span.width) == (6, 5)


def test_kinds_of_data() -> None:
    (datum,) = read('[x :y 1 1.0 true nil "s"]', "t.sx")
    assert isinstance(datum, ListDatum)
    assert datum.bracket == "["
    assert datum.items[:2] == (Symbol("x"), Keyword("y"))
    values = [item.value for item in datum.items[2:] if isinstance(item, Literal)]
    assert values == [1, 1.0, True, None, "s"]
    assert [type(value) for value in values[:2]] == [int, float]


def test_lines_are_counted_through_strings_comments_and_line_ends_of_windows() -> None:
    error = refused('"a\nb" #| c\n\n|# (x\r\n  1x)')
    assert place(error) == (5, 3, 2)


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert read(b"\xef\xbb\xbfx", "t.sx") == [Symbol("x")]
    error = refused(b"\xef\xbb\xbfab \xff")
    assert (error.code, place(error)) == ("E-READ-009", (1, 4, 1))


def test_a_source_that_is_not_utf8_is_refused_where_it_is_not() -> None:
    error = refused("a\nbü ".encode() + b"\xff )")
    assert error.code == "E-READ-009"
    assert place(error) == (2, 4, 1)
    assert error.came == "the byte 0xff"


@pytest.mark.parametrize("text", [b"(" * (50 * 2**20), "x" * (SIZE_LIMIT + 1)])
def test_a_large_source_is_refused_before_it_is_read(text: bytes | str) -> None:
    tracemalloc.start()
    started = time.process_time()
    error = refused(text)
    assert error.code == "E-READ-007"
    assert time.process_time() - started < 0.5
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("opening", ["(", "[", "'", "#;", "(list "])
def test_nesting_is_limited(opening: str) -> None:
    error = refused(opening * (NESTING_LIMIT + 1))
    assert error.code == "E-READ-008"
    assert place(error)[1] == NESTING_LIMIT * len(opening) + 1
    assert refused("(list " * 2**19).code == "E-READ-008"


def test_the_deepest_nesting_is_read() -> None:
    text = "(" * NESTING_LIMIT + ")" * NESTING_LIMIT
    assert write(read(text, "t.sx")[0]) == text


def test_a_list_left_open_ten_thousand_lines_up() -> None:
    lines = [f"(def name-{n} (list {n} (list {n})))" for n in range(10_000)]
    lines[17] = lines[17][:-1]
    error = refused("\n".join(lines))
    assert (error.code, place(error)) == ("E-READ-001", (18, 1, 1))
    assert error.notes[0] == "line 19 looks like the start of the next form"


def test_a_list_left_open_without_a_hint() -> None:
    error = refused("(def x\n  (list 1 2)\n")
    assert (error.code, place(error), error.notes) == ("E-READ-001", (1, 1, 1), [])


def test_a_missing_quote_is_shown_at_its_string() -> None:
    error = refused('(def a "one)\n(def b "two")\n(def c "three")')
    assert (error.code, place(error)) == ("E-READ-006", (1, 8, 1))


def attempt(text: bytes | str) -> list[Datum] | SexpgpuError:
    """The data, or the error; nothing else may come."""
    try:
        return read(text, "t.sx")
    except SexpgpuError as error:
        return error


def check_error(error: SexpgpuError) -> None:
    assert error.code.startswith("E-READ") or error.code == "E-VALUE-001"
    assert error.span is not None
    # The place is inside the text.
    text = error.span.source.text
    assert 1 <= error.span.line <= text.count("\n") + 1
    assert 1 <= error.span.column <= len(error.span.source.line(error.span.line)) + 1
    assert "^" in error.render()


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    result = attempt(data)
    if isinstance(result, SexpgpuError):
        check_error(result)


TOKENS = st.sampled_from(["(", ")", "[", "]", *"'\"\\;\n a1:-.é", "#;", "#|", "|#"])


@given(st.lists(TOKENS, max_size=40).map("".join))
def test_any_tokens_are_read_or_refused(text: str) -> None:
    result = attempt(text)
    if isinstance(result, SexpgpuError):
        check_error(result)
    else:
        written = [write(datum) for datum in result]
        assert [write(datum) for datum in read("\n".join(written), "t.sx")] == written


@given(st.randoms(use_true_random=False))
def test_mutated_programs_are_read_or_refused(chance: random.Random) -> None:
    text = list(PROGRAM)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text))
        match chance.randrange(3):
            case 0:
                del text[at]
            case 1:
                text.insert(at, chance.choice("()[]'\";#|:\\ \n"))
            case _:
                text[at] = chance.choice("()[]'\";#|:\\1.e")
    result = attempt("".join(text))
    if isinstance(result, SexpgpuError):
        check_error(result)


@pytest.mark.parametrize(
    "unit", ["1 ", "a\n", "() ", '"s" ', "#|", "'a ", '"\\n', ";\n", "#;a "], ids=repr
)
def test_time_is_linear(unit: str) -> None:
    def seconds(size: int) -> float:
        started = time.process_time()
        attempt(unit * (size // len(unit)))
        return time.process_time() - started

    # Not to be counted: going through whatever tests before this one have left.
    gc.collect()
    gc.freeze()
    try:
        seconds(2**12)
        assert seconds(2**17) < 8 * 8 * max(seconds(2**14), 1e-3)
    finally:
        gc.unfreeze()
