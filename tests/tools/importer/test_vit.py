"""ViT and its heads: what is imported gives what transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.importing import Case, check, made

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 30, "image_size": 20, "patch_size": 5}  # fmt: skip


def case(folder: Path, head: str = "Model", **options: Any) -> Case:
    return Case(made(f"ViT{head}", transformers.ViTConfig(**{**SIZES, **options})), folder)


def images(channels: int = 3, size: int = 20) -> Array:
    drawn = np.random.default_rng(1).standard_normal((2, channels, size, size))
    return drawn.astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"qkv_bias": False, "hidden_act": "gelu_new"},
        {"num_channels": 1, "layer_norm_eps": 1e-3, "pooler_output_size": 7},
        {"image_size": 23, "pooler_act": "relu"},
    ],
    ids=str,
)
def test_hidden_states_and_pooler(tmp_path: Path, options: dict[str, Any]) -> None:
    found = case(tmp_path, **options)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    assert found.text.count("\n") <= 57
    pixels = images(options.get("num_channels", 3), options.get("image_size", 20))
    outputs, expected = found.run(pixels), found.theirs(pixel_values=pixels)
    check(outputs["hidden"], expected.last_hidden_state)
    check(outputs["pooled"], expected.pooler_output)


def test_classes(tmp_path: Path) -> None:
    found = case(tmp_path, "ForImageClassification", num_labels=5)
    assert found.imported.unknown == []
    check(found.run(images())["logits"], found.theirs(pixel_values=images()).logits)
