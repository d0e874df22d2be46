"""The multilayer perceptron: the logits are those of torch on the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.real import relative_difference
from support.recognised import Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")


def test_logits_equal_torch(tmp_path: Path) -> None:
    """As it stands, every layer of torch's Sequential two places after the one before it."""
    ours = Recognised("mlp", tmp_path)
    nn = torch.nn
    theirs = nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(784, 512), nn.ReLU()),
        *(nn.Linear(512, 256), nn.ReLU()),
        nn.Linear(256, 10),
    )
    names = {f"layers.layers.{i}": str(2 * i + 1) for i in range(3)} | {"w": "weight", "b": "bias"}
    load_weights(theirs, renamed(ours.weights, names))
    inputs = ours.inputs(5)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(inputs["inputs"])).numpy()
    assert relative_difference(ours.run(inputs)["output"], expected) < 1e-5
    ours.check_bf16(inputs)
