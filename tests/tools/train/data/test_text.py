"""Windows of text: what their tokens are, which an evaluation reads, and what is refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.text import TextDataset
from support.data import data_error, dataset_of


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def text_of(text: str | bytes, options: str) -> TextDataset:
    Path("v.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    found = dataset_of(f'(text "v.txt" {options})')
    assert isinstance(found, TextDataset)
    return found


def tokens(data: TextDataset, indices: object) -> list[list[int]]:
    batch = data.batch(indices)["tokens"]
    assert batch.dtype == np.int32
    assert batch.flags.writeable
    return batch.tolist()


def test_windows_of_bytes_begin_anywhere() -> None:
    data = text_of(bytes(range(200, 210)), ":window 4")
    assert (data.count, data.tokens) == (7, 4)
    assert tokens(data, np.array([6, 0, 0])) == [
        [206, 207, 208, 209],
        [200, 201, 202, 203],
        [200, 201, 202, 203],
    ]
    assert {name: str(type) for name, type in data.fields.items()} == {"tokens": "[batch, 4] i32"}


def test_a_file_of_one_window() -> None:
    assert text_of("abcd", ":window 4").count == 1


@pytest.mark.parametrize(
    ("window", "starts"), [(4, [0, 3, 6]), (5, [0, 4]), (10, [0]), (1, list(range(10)))]
)
def test_an_evaluation_predicts_every_token_once(window: int, starts: list[int]) -> None:
    data = text_of("0123456789", f":window {window}")
    assert list(data.evaluation()) == starts
    predicted = [t for w in tokens(data, data.evaluation()) for t in (w[1:] or w)]
    whole = list(b"0123456789")[0 if window == 1 else 1 :]
    assert predicted == whole[: len(predicted)]
    assert len(whole) - len(predicted) < window


def test_characters_are_numbered_in_the_file_s_order_of_characters() -> None:
    data = text_of("hello\nwörld €😀", ":window 3 :tokenizer :characters")
    assert data.characters == "\n dehlorwö€😀"
    text = "hello\nwörld €😀"
    assert tokens(data, range(data.count)) == [
        [data.characters.index(c) for c in text[n : n + 3]] for n in range(len(text) - 2)
    ]


def test_characters_of_ascii_are_read_where_they_are() -> None:
    text = "to be\r\nor not"
    data = text_of(text, ":window 13 :tokenizer :characters")
    assert [data.characters[t] for t in tokens(data, [0])[0]] == list(text)


def test_characters_cut_by_the_end_of_a_piece() -> None:
    text = "a" + "é" * 700_000 + "€"
    data = text_of(text, ":window 2 :tokenizer :characters")
    assert data.count == len(text) - 1
    assert tokens(data, [0, 524_287, data.count - 1]) == [[0, 1], [1, 1], [1, 2]]


def test_more_characters_than_a_byte_numbers() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 70_000 // 2)))
    data = text_of(text, ":window 1 :tokenizer :characters")
    assert tokens(data, [0, 300, 34_999]) == [[0], [300], [34_999]]


def test_a_split_is_by_position_and_keeps_the_vocabulary() -> None:
    text = "aaaaabbbbb" * 2
    first = text_of(text, ":window 2 :tokenizer :characters :split (list 0 0.25)")
    rest = text_of(text, ":window 2 :tokenizer :characters :split (list 0.25 1)")
    assert first.characters == rest.characters == "ab"
    assert (first.count, rest.count) == (4, 14)
    assert tokens(first, range(4)) == [[0, 0]] * 4
    assert tokens(rest, [0, 4]) == [[1, 1], [1, 0]]


def test_symbols_that_hold_every_token() -> None:
    assert text_of(bytes(range(32)), ":window 2 :tokenizer :bytes :symbols 32").count == 31
    assert text_of("abc", ":window 2 :symbols 3 :tokenizer :characters").count == 2


def test_a_byte_beyond_symbols() -> None:
    Path("v.txt").write_bytes(b"\1\2\n\3ab")
    error = data_error('(text "v.txt" :window 2 :tokenizer :bytes :symbols 32)', "E-DATA-008")
    assert error.place == "v.txt"
    assert error.came == "the byte 97 'a' at byte 4 of the file (line 2, column 2)"
    assert error.expected == "tokens from 0 to 31, as `:symbols 32` says"
    assert error.help is not None
    assert "`:tokenizer :characters` numbers the file's 6 characters" in error.help


def test_a_byte_beyond_symbols_in_a_file_that_is_no_text() -> None:
    Path("v.txt").write_bytes(bytes(range(256)))
    error = data_error('(text "v.txt" :window 2 :tokenizer :bytes :symbols 200)', "E-DATA-008")
    assert error.help == "give `:symbols 256`, which holds every byte"


def test_a_character_beyond_symbols() -> None:
    Path("v.txt").write_text("abc\nxaé", "utf-8")
    error = data_error('(text "v.txt" :window 2 :tokenizer :characters :symbols 4)', "E-DATA-008")
    assert error.came is not None
    assert error.came.startswith("'x', the character 4 of 6 (from 0) at byte 4 of the file (line 2")
    assert error.help is not None
    assert ":symbols 6" in error.help


@pytest.mark.parametrize(
    ("content", "place"),
    [(b"ab\xffcd", 2), (b"x" * (1 << 20) + b"\nok\xc3(", (1 << 20) + 3), (b"abc\xe2\x82", 3)],
)
def test_text_that_is_not_utf_8(content: bytes, place: int) -> None:
    Path("v.txt").write_bytes(content)
    error = data_error('(text "v.txt" :window 2 :tokenizer :characters)', "E-DATA-003")
    assert error.came is not None
    assert f"at byte {place:,} of the file" in error.came


def test_files_without_a_window() -> None:
    Path("v.txt").write_text("abcdef")
    error = data_error('(text "v.txt" :window 7)', "E-DATA-007")
    assert (error.came, error.expected) == ("6 tokens", "at least 7, as :window says")
    error = data_error('(text "v.txt" :window 4 :split (list 0 0.5))', "E-DATA-007")
    assert error.came == "3 tokens, the :split of 6"
    error = data_error('(text "v.txt" :window 4 :split (list 0 0.1))', "E-DATA-007")
    assert error.message == ":split takes none of the tokens"
    Path("v.txt").write_bytes(b"")
    assert data_error('(text "v.txt" :window 4)', "E-DATA-007").message == "the file is empty"


def test_files_that_cannot_be_read() -> None:
    error = data_error('(text "none.txt" :window 4)', "E-DATA-002")
    assert error.help is not None
    assert str(Path.cwd()) in error.help
    Path("folder").mkdir()
    assert "a folder" in data_error('(text "folder" :window 4)', "E-DATA-002").message
    assert "no regular file" in data_error('(text "/dev/zero" :window 4)', "E-DATA-002").message
    long = "x" * 300
    assert "too long" in data_error(f'(text "{long}" :window 4)', "E-DATA-002").message


def test_a_file_that_is_cut_short_while_it_is_read() -> None:
    data = text_of("x" * 100_000, ":window 4")
    os.truncate("v.txt", 10)
    with pytest.raises(SexpgpuError) as caught:
        data.batch([50_000])
    assert caught.value.code == "E-DATA-003"
    assert caught.value.came == "10 bytes"


def test_a_file_that_is_replaced_is_read_on() -> None:
    data = text_of("x" * 100, ":window 4")
    Path("other").write_text("y" * 10)
    Path("other").replace("v.txt")
    assert tokens(data, [50]) == [[120] * 4]


def test_fingerprints_are_of_the_content() -> None:
    one = text_of("x" * 100, ":window 4").fingerprint()
    assert text_of("x" * 100, ":window 5").fingerprint() == one
    assert text_of("x" * 99 + "y", ":window 4").fingerprint() != one
    assert text_of("x" * 101, ":window 4").fingerprint() != one


def words(path: str, vocabulary: dict[str, int], **more: object) -> None:
    """A tokenizer.json of whole words."""
    Path(path).write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": [],
                "normalizer": None,
                "pre_tokenizer": {"type": "Whitespace"},
                "post_processor": None,
                "decoder": None,
                "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"},
            }
            | more
        )
    )


def test_a_tokenizer() -> None:
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    words("t.json", {"?": 0, "to": 1, "be": 2, "or": 3}, truncation=cut)
    data = text_of("to be or\nnot to be", ':window 6 :tokenizer "t.json"')
    assert tokens(data, [0]) == [[1, 2, 3, 0, 1, 2]]


def test_tokens_are_kept_by_what_they_are_made_from() -> None:
    words("t.json", {"?": 0, "to": 1, "be": 2})
    kept = Path(os.environ["SEXPGPU_CACHE"]) / "tokens"
    kept.mkdir(parents=True, exist_ok=True)
    before = set(kept.iterdir())
    options = ':window 2 :tokenizer "t.json"'
    first = text_of("to be to be to be", options)
    (made,) = set(kept.iterdir()) - before
    assert made.read_bytes() == np.array([1, 2] * 3, np.uint16).tobytes()
    # What is kept is what is read the next time.
    made.write_bytes(np.array([2, 1] * 3, np.uint16).tobytes())
    assert tokens(text_of("to be to be to be", options), [0]) == [[2, 1]]
    assert tokens(text_of("to be to be to to", options), [4]) == [[1, 1]]
    words("t.json", {"?": 0, "to": 2, "be": 1})
    again = text_of("to be to be to be", options)
    assert tokens(again, [1]) == [[1, 2]]
    assert again.fingerprint() != first.fingerprint()


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("SEXPGPU_CACHE", str(Path("file").resolve()))
    words("t.json", {"?": 0, "to": 1, "be": 2})
    assert tokens(text_of("to be", ':window 2 :tokenizer "t.json"'), [0]) == [[1, 2]]


def test_a_tokenizer_s_token_beyond_symbols() -> None:
    words("t.json", {"?": 0, "to": 1, "be": 2, "or": 3})
    Path("v.txt").write_text("to be\nto\nto or be")
    error = data_error('(text "v.txt" :window 2 :tokenizer "t.json" :symbols 3)', "E-DATA-008")
    assert error.came == "the token 3, 'or', which is number 4 of the text (line 3)"
    assert error.help == "`t.json` has 4 tokens: give `:symbols 4`"
    assert text_of("to be", ':window 2 :tokenizer "t.json" :symbols 3').count == 1


@pytest.mark.parametrize("content", ["{", '{"version": "1.0"}', "[" * 5000, "\0" * 10])
def test_a_tokenizer_that_is_none(content: str) -> None:
    Path("t.json").write_text(content)
    Path("v.txt").write_text("to be")
    error = data_error('(text "v.txt" :window 2 :tokenizer "t.json")', "E-DATA-003")
    assert error.place == "t.json"


def test_a_tokenizer_that_is_missing() -> None:
    Path("v.txt").write_text("to be")
    error = data_error('(text "v.txt" :window 2 :tokenizer "t.json")', "E-DATA-002")
    assert error.message == "`t.json` is missing"


def test_a_word_that_a_tokenizer_has_no_token_for() -> None:
    words("t.json", {"to": 0})
    Path("v.txt").write_text("to be")
    error = data_error('(text "v.txt" :window 1 :tokenizer "t.json")', "E-DATA-003")
    assert "fails on the text" in error.message


def test_a_tokenizer_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    Path("v.txt").write_text("to be")
    error = data_error('(text "v.txt" :window 1 :tokenizer "t.json")', "E-DATA-010")
    assert error.help == "pip install 'sexpgpu[train]'"
