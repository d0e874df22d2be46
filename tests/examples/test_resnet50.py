"""ResNet-50: its logits are those of transformers on the same weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sexpgpu.export.graph.types import Array
from support.real import relative_difference
from support.recognised import Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NAMES = {
    "stem": "resnet.embedder.embedder",
    "stages": "resnet.encoder.stages",
    "reduce": "layer.0",
    "spatial": "layer.1",
    "expand": "layer.2",
    "conv.w": "convolution.weight",
    "norm": "normalization",
    "scale": "weight",
    "mean": "running_mean",
    "variance": "running_var",
    "head": "classifier.1",
    "w": "weight",
    "b": "bias",
}


def make_theirs(
    ours: Recognised, depths: tuple[int, ...], widths: tuple[int, ...], classes: int
) -> Any:
    config = transformers.ResNetConfig(
        embedding_size=widths[0],
        hidden_sizes=list(widths[1:]),
        depths=list(depths),
        num_labels=classes,
    )
    model = transformers.ResNetForImageClassification(config)
    # The blocks of a stage are its `layers`.
    state = {re.sub(r"^(stages\.\d+)", r"\1.layers", p): array for p, array in ours.weights.items()}
    return load_weights(model, renamed(state, NAMES))


def difference(ours: Recognised, theirs: Any, inputs: dict[str, Array], **options: Any) -> float:
    with torch.no_grad():
        expected = theirs(pixel_values=torch.from_numpy(inputs["inputs"])).logits.numpy()
    return relative_difference(ours.run(inputs, **options)["output"], expected)


def test_logits_equal_transformers(tmp_path: Path) -> None:
    """Of a smaller one, whose images are no squares of a power of two."""
    depths, widths = (2, 1, 3, 1), (8, 24, 32, 48, 64)
    ours = Recognised("resnet50", tmp_path, size=75, classes=17, depths=depths, widths=widths)
    theirs = make_theirs(ours, depths, widths, 17)
    inputs = ours.inputs(3)
    assert difference(ours, theirs, inputs) < 1e-5
    ours.check_bf16(inputs)


def test_the_published_shape(tmp_path: Path) -> None:
    ours = Recognised("resnet50", tmp_path)
    statistics = 53_120
    assert sum(array.size for array in ours.weights.values()) == 25_557_032 + statistics
    theirs = make_theirs(ours, (3, 4, 6, 3), (64, 256, 512, 1024, 2048), 1000)
    assert difference(ours, theirs, ours.inputs(2), verify=False) < 1e-5
