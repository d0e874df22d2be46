"""Where a long text is cut before it is encoded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import tokenizers
from tokenizers import pre_tokenizers

from sexpgpu.tools.train.data import tokens
from sexpgpu.tools.train.data.files import DataFile
from sexpgpu.tools.train.data.tokenizer import text_pieces

#: How GPT-4's and later tokenizers find words: https://github.com/openai/tiktoken
GPT_4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def pieces_of(text: str, size: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(tokens, "_BLOCK", size)
    path.write_bytes(text.encode())
    return list(text_pieces(DataFile(str(path)), size))


@pytest.mark.parametrize("split", ["gpt-2", "gpt-4", "bert"])
def test_pieces_have_the_words_of_the_whole(
    split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {
        "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "gpt-4": pre_tokenizers.Split(tokenizers.Regex(GPT_4), "isolated"),
        "bert": pre_tokenizers.BertPreTokenizer(),
    }[split]
    draw = random.Random(0)
    parts = ["to", " be", ".", "\n", "\n", "\n\n", " ", "\t", "  \n", "é", "12345", "it's", "!\n"]
    for _ in range(20):
        text = "".join(draw.choices(parts, k=2000))
        pieces = pieces_of(text, 256, tmp_path / "v", monkeypatch)
        assert len(pieces) > 4
        assert "".join(pieces) == text
        found = [word for piece in pieces for word, _ in words.pre_tokenize_str(piece)]
        assert found == [word for word, _ in words.pre_tokenize_str(text)]


@pytest.mark.parametrize("text", ["x" * 10_000, "\n" * 10_000, " \n" * 5_000])
def test_text_that_has_no_place_to_cut(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = pieces_of(text, 256, tmp_path / "v", monkeypatch)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 17 * 256


def test_a_short_text_is_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pieces_of("a\nb\nc", 64, tmp_path / "v", monkeypatch) == ["a\nb\nc"]
