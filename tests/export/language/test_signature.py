"""Parameter lists, and which keywords of a call name parameters."""

from __future__ import annotations

import pytest

from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.signature import keyword_names, signature_of, split_keywords
from sexpgpu.schemas.errors import SexpgpuError

K = Keyword("k")


def test_a_signature_says_how_many_arguments_it_takes() -> None:
    signature = signature_of("(x y &optional z &rest more &key (k 1) l)")
    assert (signature.least, signature.most) == (2, None)
    assert list(signature.keys) == ["k", "l"]
    assert signature.names() == ["x", "y", "z", "more", "k", "l"]
    assert not signature.is_simple
    assert signature_of("(x y)").is_simple
    assert not signature_of("(x (y z))").is_simple
    assert signature_of("(x &optional y)").most == 2
    assert signature.usage("f") == "(f x y &optional z &rest more &key (k 1) l)"
    assert signature_of("()").usage("f") == "(f)"


@pytest.mark.parametrize(
    ("signature", "items", "split"),
    [
        ("(x)", [K, 1], 2),
        ("(x &rest r)", [1, K, 2], 3),
        ("(x &key k)", [1, K, 2], 1),
        ("(x &key k)", [K, K, 2], 1),
        ("(x &optional y &key k)", [1, K, 2], 1),
        ("(x &rest r &key k)", [1, 2, 3, K, 4], 3),
        ("(&key k)", [K, 4], 0),
        ("(x &key k)", [1], 1),
        ("(x y &key k)", [K], 1),
    ],
)
def test_the_first_keyword_after_the_required_arguments_begins_the_keywords(
    signature: str, items: list[object], split: int
) -> None:
    assert split_keywords(signature_of(signature), items) == split


def test_a_callee_that_says_nothing_takes_keywords_anywhere() -> None:
    assert split_keywords(None, [1, K, 2]) == 1


@pytest.mark.parametrize("items", [[1, K], [1, K, 2, 3, 4], [1, K, 2, K, 3]])
def test_keywords_come_in_pairs_and_once(items: list[object]) -> None:
    with pytest.raises(SexpgpuError) as raised:
        keyword_names(items, 1, "f", None)
    assert raised.value.code == "E-CALL-002"


def test_a_check_counts_and_knows_the_keywords() -> None:
    signature = signature_of("(x &optional y &key depth width)")
    signature.check("f", 2, ["width"], None)
    for count in (0, 3):
        with pytest.raises(SexpgpuError) as raised:
            signature.check("f", count, [], None)
        assert raised.value.code == "E-CALL-002"
        assert "takes 1 to 2 arguments" in raised.value.message
    with pytest.raises(SexpgpuError) as raised:
        signature.check("f", 1, ["dept"], None)
    assert raised.value.code == "E-CALL-003"
    assert raised.value.help == "did you mean `:depth`?"
