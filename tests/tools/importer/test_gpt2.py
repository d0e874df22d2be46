"""GPT-2: what is imported gives the logits of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support.importing import WINDOW, Case, check, made, tokens

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 37, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 20,
         "bos_token_id": None, "eos_token_id": None}  # fmt: skip


def case(folder: Path, kind: str = "GPT2LMHeadModel", **options: Any) -> Case:
    return Case(made(kind, transformers.GPT2Config(**{**SIZES, **options})), folder, window=WINDOW)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_inner": 30, "activation_function": "relu", "layer_norm_epsilon": 1e-3},
        {"tie_word_embeddings": False, "activation_function": "gelu"},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
        {"reorder_and_upcast_attn": True},
    ],
    ids=str,
)
def test_equal_to_transformers(tmp_path: Path, options: dict[str, Any]) -> None:
    found = case(tmp_path, **options)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    assert found.text.count("\n") <= 56
    found.check_language_model()


def test_the_file_of_the_first_release(tmp_path: Path) -> None:
    """It has no names before `h` and `wte`, and the masks of its layers."""
    found = case(tmp_path)
    path = tmp_path / "model" / "model.safetensors"
    tensors = {name.removeprefix("transformer."): a for name, a in load_file(path).items()}
    masks = {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, 20, 20), np.float32)) for i in range(3)}
    save_file({**tensors, **masks}, path, {"format": "pt"})
    found.imported = found.again()
    assert found.imported.unused == []
    assert '"h"' in found.text
    found.check_language_model()


def test_the_model_below_the_head(tmp_path: Path) -> None:
    found = case(tmp_path, "GPT2Model")
    ids = tokens(37)
    check(found.run(ids)["hidden"], found.theirs(input_ids=ids).last_hidden_state)


def test_classes_and_answers(tmp_path: Path) -> None:
    found = case(tmp_path / "text", "GPT2ForSequenceClassification", num_labels=5)
    assert "2019): classes. Written" in found.text
    found.check_classes_of_texts()
    found = case(tmp_path / "tokens", "GPT2ForTokenClassification", num_labels=5)
    ids = tokens(37)
    check(found.run(ids)["logits"], found.theirs(input_ids=ids).logits)
    found = case(tmp_path / "answers", "GPT2ForQuestionAnswering")
    assert "2019): where an answer begins and ends. Written" in found.text
    found.check_answers(ids)
