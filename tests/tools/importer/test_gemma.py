"""Gemma 1, 2 and 3: what is imported gives the logits of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.importing import DECODER, WINDOW, Case, made

transformers = pytest.importorskip("transformers")

CONFIGS = {"Gemma": "GemmaConfig", "Gemma2": "Gemma2Config", "Gemma3": "Gemma3TextConfig"}


def case(folder: Path, family: str, head: str = "ForCausalLM", **options: Any) -> Case:
    config = getattr(transformers, CONFIGS[family])(**{**DECODER, "head_dim": 8, **options})
    return Case(made(f"{family}{head}", config), folder, window=WINDOW)


ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
SIX = {"num_hidden_layers": 7, "sliding_window": 4, "query_pre_attn_scalar": 8}

MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("plain", "Gemma", {}),
    ("own head", "Gemma", {"tie_word_embeddings": False, "hidden_act": "gelu"}),
    ("biases", "Gemma", {"attention_bias": True, "head_dim": 6}),
    ("windows", "Gemma2", {"sliding_window": 4, "query_pre_attn_scalar": 17}),
    ("caps", "Gemma2", {"attn_logit_softcapping": 0.5, "final_logit_softcapping": 0.7}),
    ("no caps", "Gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None,
        "layer_types": ["full_attention"] * 3}),
    ("windows", "Gemma3", {**SIX}),
    ("two ropes", "Gemma3", {**SIX, "rope_parameters": ROPES, "layer_types": [
        "sliding_attention", "sliding_attention", "full_attention"] * 2 + ["sliding_attention"]}),
    ("local layers alone", "Gemma3", {**SIX, "final_logit_softcapping": 0.7,
        "num_hidden_layers": 2}),
    ("everything seen", "Gemma3", {"layer_types": ["full_attention"] * 3}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "family", "options"), MODELS, ids=lambda item: str(item)[:20])
def test_equal_to_transformers(
    tmp_path: Path, name: str, family: str, options: dict[str, Any]
) -> None:
    found = case(tmp_path, family, **options)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    assert found.text.count("\n") <= 60
    found.check_language_model()


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("Gemma", "ForSequenceClassification"),
        ("Gemma2", "ForSequenceClassification"),
        ("Gemma3", "TextForSequenceClassification"),
    ],
)
def test_classes(tmp_path: Path, family: str, head: str) -> None:
    found = case(tmp_path, family, head, num_labels=5)
    assert (found.imported.notes, found.imported.unused) == ([], [])
    found.check_classes_of_texts()
