"""GPT-2: what is imported gives the logits of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


def test_the_model_below_the_head(tmp_path: Path) -> None:
    found = case(tmp_path, "GPT2Model")
    ids = tokens(37)
    check(found.run(ids)["hidden"], found.theirs(input_ids=ids).last_hidden_state)
