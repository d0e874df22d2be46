"""Files beside the weights: what others would heed is said, whatever stands in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sexpgpu.tools.importer.beside import notes_beside

TYPES = "sentence_transformers.models."


def modules(*names: str) -> list[dict[str, Any]]:
    """As sentence-transformers lists them: "1_Pooling" is a Pooling, the first a Transformer."""
    kinds = ["Transformer", *(name.partition("_")[2] for name in names[1:])]
    return [
        {"idx": i, "name": str(i), "path": name, "type": TYPES + kind}
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]


def write(folder: Path, listed: object, pooling: object = None) -> None:
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def steps(folder: Path) -> str:
    (note,) = notes_beside(folder)
    assert note.startswith("sentence-transformers makes a text's vector of what the model gives")
    assert note.endswith("; the program ends before that")
    return note.partition("by modules.json: ")[2].partition(";")[0]


def test_an_adapter(tmp_path: Path) -> None:
    assert notes_beside(tmp_path) == []
    (tmp_path / "adapter_config.json").write_text("{}")
    assert notes_beside(tmp_path) == [
        "there is an adapter beside the weights, and it is not applied"
    ]


def test_what_is_made_of_the_hidden_states(tmp_path: Path) -> None:
    mean = {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True}
    write(tmp_path, modules("", "1_Pooling", "2_Normalize"), mean)
    assert steps(tmp_path) == "the mean over the tokens, then a length of 1"
    both = {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}
    write(tmp_path, modules("", "1_Pooling", "2_Dense"), both)
    assert steps(tmp_path) == (
        "the vector of the first token and the largest over the tokens, then 2_Dense"
    )
    write(tmp_path, modules("", "1_Pooling"), {"pooling_mode": "new"})
    assert steps(tmp_path) == "1_Pooling"


def test_the_layout_of_before(tmp_path: Path) -> None:
    """The model stands in a directory of its own, and what is made of it above."""
    model = tmp_path / "0_Transformer"
    model.mkdir()
    write(tmp_path, modules("0_Transformer", "1_Pooling"), {"pooling_mode_mean_tokens": True})
    assert steps(model) == "the mean over the tokens"
    other = tmp_path / "other"
    other.mkdir()
    assert notes_beside(other) == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "[" * 100_000, "[1]", '[{"type": 1, "path": ""}]',
     '[{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "../x"}]',
     '[{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": ".."}]',
     '[{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "\\ud800"}]'],
    ids=lambda text: text[:60],
)  # fmt: skip
def test_a_list_that_is_damaged_names_no_steps(tmp_path: Path, text: str) -> None:
    (tmp_path / "modules.json").write_text(text)
    assert steps(tmp_path) == "what that says"


@pytest.mark.parametrize("pooling", [None, [], 3, {"pooling_mode_mean_tokens": "yes"}], ids=str)
def test_a_pooling_that_is_not_known_is_named(tmp_path: Path, pooling: object) -> None:
    write(tmp_path, modules("", "1_Pooling"), pooling)
    assert steps(tmp_path) == "1_Pooling"
