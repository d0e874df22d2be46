"""ViT: its logits are those of transformers on the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.real import relative_difference
from support.recognised import Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NAMES = {
    "patches.conv": "vit.embeddings.patch_embeddings.projection",
    "class": "vit.embeddings.cls_token",
    "positions": "vit.embeddings.position_embeddings",
    "blocks": "vit.layers",
    "attention-norm": "layernorm_before",
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "out": "o_proj",
    "mlp-norm": "layernorm_after",
    "up": "fc1",
    "down": "fc2",
    "norm": "vit.layernorm",
    "head": "classifier",
    "w": "weight",
    "b": "bias",
    "scale": "weight",
}


def test_logits_equal_transformers(tmp_path: Path) -> None:
    """Of a smaller one, with four patches in a row and rows apart in what they see."""
    size, dim, depth, heads, classes = 30, 48, 3, 4, 13
    knobs = {"size": size, "patch": 7, "dim": dim, "depth": depth, "heads": heads}
    ours = Recognised("vit", tmp_path, classes=classes, **knobs)
    ours.sharpen(4.0, "q.w", "k.w")
    config = transformers.ViTConfig(
        image_size=size,
        patch_size=7,
        hidden_size=dim,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * dim,
        layer_norm_eps=1e-6,
        num_labels=classes,
    )
    state = renamed(ours.weights, NAMES)
    for name in ("cls_token", "position_embeddings"):
        path = f"vit.embeddings.{name}"
        state[path] = state[path].reshape(1, -1, dim)
    theirs = load_weights(transformers.ViTForImageClassification(config), state)
    inputs = ours.inputs(3)
    with torch.no_grad():
        expected = theirs(pixel_values=torch.from_numpy(inputs["inputs"])).logits.numpy()
    assert relative_difference(ours.run(inputs)["output"], expected) < 1e-5
    ours.check_bf16(inputs)
