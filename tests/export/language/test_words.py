"""Numbers as words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.language.data import Literal
from sexpgpu.export.language.reader import read
from sexpgpu.schemas.errors import SexpgpuError


def value(text: str) -> object:
    (datum,) = read(text, "t.sx")
    assert isinstance(datum, Literal)
    return datum.value


@given(st.floats(allow_nan=False))
def test_every_float_is_read_exactly(number: float) -> None:
    assert value(repr(number)) == number
    assert type(value(repr(number))) is float


@given(st.integers(-(2**70), 2**70))
def test_whole_numbers_are_those_of_64_bits(number: int) -> None:
    if -(2**63) <= number < 2**63:
        assert value(str(number)) == number
    else:
        with pytest.raises(SexpgpuError) as raised:
            value(str(number))
        assert raised.value.code == "E-VALUE-001"


@pytest.mark.parametrize("word", ["1" * 401, "1." + "0" * 1_000_000, "-" + "9" * 2_000_000])
def test_a_number_of_too_many_digits_is_refused_at_once(word: str) -> None:
    with pytest.raises(SexpgpuError) as raised:
        read(word, "t.sx")
    assert raised.value.code == "E-READ-004"
    assert len(raised.value.message) < 100


@given(st.from_regex(r"[+-]?\.?[0-9][0-9a-z.+-]{0,6}", fullmatch=True))
def test_what_begins_like_a_number_is_one_or_refused(word: str) -> None:
    try:
        number = value(word)
    except SexpgpuError as error:
        code = error.code
    else:
        code = "none" if isinstance(number, int | float) else "another kind"
    assert code in ("none", "E-READ-004", "E-VALUE-001")
