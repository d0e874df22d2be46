"""ConvNeXt: its logits are those of transformers on the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.real import relative_difference
from support.recognised import Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NAMES = {
    "stages.0.entry.conv": "convnext.embeddings.patch_embeddings",
    "stages.0.entry.norm.norm": "convnext.embeddings.layernorm",
    "stages": "convnext.encoder.stages",
    "entry.norm.norm": "downsampling_layer.0",
    "entry.conv": "downsampling_layer.1",
    "blocks": "layers",
    "spatial": "dwconv",
    "mlp.up": "pwconv1",
    "mlp.down": "pwconv2",
    "norm": "layernorm",
    "layer-scale": "layer_scale_parameter",
    "head-norm": "convnext.layernorm",
    "head": "classifier",
    "w": "weight",
    "b": "bias",
    "scale": "weight",
}


def test_logits_equal_transformers(tmp_path: Path) -> None:
    """Of a smaller one, whose images are no squares of a power of two."""
    depths, widths, classes = (2, 1, 2, 1), (12, 20, 28, 36), 11
    ours = Recognised("convnext", tmp_path, size=73, depths=depths, widths=widths, classes=classes)
    config = transformers.ConvNextConfig(
        hidden_sizes=list(widths), depths=list(depths), num_labels=classes, layer_norm_eps=1e-6
    )
    state = renamed(ours.weights, NAMES)
    theirs = load_weights(transformers.ConvNextForImageClassification(config), state)
    inputs = ours.inputs(3)
    with torch.no_grad():
        expected = theirs(pixel_values=torch.from_numpy(inputs["inputs"])).logits.numpy()
    assert relative_difference(ours.run(inputs)["output"], expected) < 1e-5
    ours.check_bf16(inputs)
