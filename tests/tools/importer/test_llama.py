"""Llama, Mistral and Qwen: what is imported gives the logits of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.importing import DECODER, WINDOW, Case, made

transformers = pytest.importorskip("transformers")


def case(folder: Path, family: str, head: str = "ForCausalLM", **options: Any) -> Case:
    config = getattr(transformers, f"{family}Config")(**{**DECODER, **options})
    return Case(made(f"{family}{head}", config), folder, window=WINDOW)


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}

#: A name, the family, and what is not as it is by default.
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("plain", "Llama", {}),
    ("tied", "Llama", {"tie_word_embeddings": True}),
    ("biases", "Llama", {"attention_bias": True, "mlp_bias": True}),
    ("narrow heads", "Llama", {"head_dim": 8, "num_key_value_heads": 4}),
    ("linear rope", "Llama", {"rope_parameters": {
        "rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}}),
    ("llama3 rope", "Llama", {"rope_parameters": LLAMA3}),
    ("relu", "Llama", {"hidden_act": "relu", "rms_norm_eps": 1e-3}),
    ("window", "Mistral", {"sliding_window": 5}),
    ("no window", "Mistral", {"sliding_window": None, "head_dim": 10}),
    ("plain", "Qwen2", {}),
    ("upper windows", "Qwen2", {
        "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    ("tied", "Qwen2", {"tie_word_embeddings": True}),
    ("plain", "Qwen3", {"head_dim": 8}),
    ("biases", "Qwen3", {"head_dim": 6, "attention_bias": True}),
    ("mixed windows", "Qwen3", {"head_dim": 8, "use_sliding_window": True, "sliding_window": 4,
        "num_hidden_layers": 4, "layer_types": [
            "sliding_attention", "full_attention", "full_attention", "sliding_attention"]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "family", "options"), MODELS, ids=lambda item: str(item)[:20])
def test_equal_to_transformers(
    tmp_path: Path, name: str, family: str, options: dict[str, Any]
) -> None:
    found = case(tmp_path, family, **options)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    assert found.text.count("\n") <= 60
    found.check_language_model()
