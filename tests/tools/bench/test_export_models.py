"""The models that are exported: what is made of them as files, and when anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sexpgpu.export.graph.types import elements
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from sexpgpu.tools.bench.export_models import EXAMPLES, MODELS, RECORDS, Model, prepare

SMALL = Model("mlp", "", "gpt2.sx", {"window": 4, "vocab": 9, "dim": 8, "depth": 1, "heads": 1})


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if not model.real])
def test_inputs_are_what_the_program_takes(name: str) -> None:
    model = MODELS[name]
    graph = trace_alone(compile_program(EXAMPLES / model.program, None, model.knobs)).graph
    for value, array in zip(graph.inputs, model.inputs(), strict=True):
        assert array.shape == (RECORDS, *value.type.shape[1:])
        assert array.dtype == value.type.dtype.numpy
    weights = sum(elements(value.type.shape) for value in graph.weights.values())
    assert 20e6 < weights < 300e6


def test_weights_are_begun_once(tmp_path: Path) -> None:
    first = prepare(SMALL, tmp_path)
    written = first.weights.stat().st_mtime_ns
    assert prepare(SMALL, tmp_path).weights.stat().st_mtime_ns == written
    other = prepare(replace(SMALL, knobs={**SMALL.knobs, "dim": 16}), tmp_path)
    assert other.weights.stat().st_mtime_ns != written
    told = json.loads((other.folder / "model.json").read_text())
    assert told["knobs"]["dim"] == 16
    assert Path(told["weights"]) == other.weights
