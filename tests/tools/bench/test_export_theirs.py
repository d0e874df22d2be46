"""Transformers' models with our weights compute what ours mean, in f64 and to f32's last digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.graph.reference import evaluate
from sexpgpu.tools.bench.export_models import Model, prepare
from sexpgpu.tools.bench.export_ours import subject_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

MODELS = [
    Model("gpt2", "", "gpt2.sx", {"window": 8, "vocab": 50, "dim": 32, "depth": 2, "heads": 2}),
    Model(
        "llama3",
        "",
        "llama3.sx",
        {
            "window": 8,
            "vocab": 50,
            "dim": 32,
            "depth": 2,
            "heads": 4,
            "kv-heads": 2,
            "hidden": 48,
        },
    ),
    Model("resnet50", "", "resnet50.sx", {"size": 32, "classes": 5}),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_it_is_the_same_model(model: Model, tmp_path: Path) -> None:
    from sexpgpu.tools.bench import export_theirs

    prepared = prepare(model, tmp_path)
    theirs = export_theirs.build(prepared.description())
    with torch.no_grad():
        expected = theirs(export_theirs.inputs_of(prepared.folder)[0][:2]).numpy()
    subject = subject_of(prepared.description())
    graph = subject.model.graph
    with np.load(prepared.inputs) as stored:
        given = {
            value.name: stored[key][:2] for value, key in zip(graph.inputs, stored, strict=True)
        }
    (found,) = evaluate(graph, given, subject.read).values()
    assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected))
