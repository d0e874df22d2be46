"""The models that are exported: examples of this repository, which transformers has as well."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.bench.models import sexpgpu
from sexpgpu.tools.fetch_models import fetch_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: Records that inputs are made for, and the numbers of them that a run has.
RECORDS = 8
BATCHES = (1, RECORDS)


@dataclass(frozen=True, slots=True)
class Model:
    """An example under some knobs; `real`: its weights are read from a file, and not drawn."""

    name: str
    title: str
    program: str
    knobs: Mapping[str, int] = field(default_factory=dict)
    real: bool = False

    def inputs(self) -> list[Array]:
        """The inputs in their order, for RECORDS records."""
        generator = np.random.default_rng(1)
        if self.name == "resnet50":
            size = self.knobs.get("size", 224)
            return [generator.standard_normal((RECORDS, 3, size, size)).astype(np.float32)]
        window = self.knobs["window"]
        tokens = generator.integers(0, self.knobs["vocab"], (RECORDS, window)).astype(np.int32)
        if self.name != "minilm":
            return [tokens]
        # Sentences of half a window and more, the first of a whole one.
        lengths = np.linspace(window, window // 2, RECORDS).astype(int)
        return [tokens, np.arange(window) < lengths[:, None]]


MODELS = {
    model.name: model
    for model in (
        Model("gpt2", "GPT-2 small", "gpt2.sx", {"window": 128, "vocab": 50257}),
        Model("minilm", "MiniLM", "minilm.sx", {"window": 128, "vocab": 30522}, real=True),
        Model("resnet50", "ResNet-50", "resnet50.sx"),
        Model(
            "llama3",
            "Llama-3-like",
            "llama3.sx",
            {
                "window": 128,
                "vocab": 32000,
                "dim": 768,
                "depth": 12,
                "heads": 12,
                "kv-heads": 4,
                "hidden": 2560,
            },
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model as files of a folder, which the processes that are measured read.

    `weights` is the file of safetensors, with our paths or, where they are real, their own names.
    """

    model: Model
    folder: Path

    @property
    def program(self) -> Path:
        return EXAMPLES / self.model.program

    @property
    def checkpoint(self) -> Path | None:
        """What our export reads; None where the program says which file."""
        return None if self.model.real else self.folder / "run"

    @property
    def weights(self) -> Path:
        if self.model.real:
            return fetch_model(self.model.name)["model.safetensors"]
        (step,) = (self.folder / "run").glob("step-*")
        return step / "params.safetensors"

    @property
    def inputs(self) -> Path:
        return self.folder / "inputs.npz"

    def knobs(self) -> dict[str, Any]:
        """Those of the program; the vocabulary of a real model is its file's."""
        if not self.model.real:
            return dict(self.model.knobs)
        known = {name: value for name, value in self.model.knobs.items() if name != "vocab"}
        return {**known, "weights": str(self.weights)}

    def description(self) -> dict[str, Any]:
        """What the processes are told."""
        return {
            "name": self.model.name,
            "program": str(self.program),
            "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
            "knobs": self.knobs(),
            "shape": dict(self.model.knobs),
            "weights": str(self.weights),
        }


def prepare(model: Model, folder: Path) -> Prepared:
    """Begins the model's weights and draws its inputs, unless the folder holds them already."""
    prepared = Prepared(model, folder / model.name)
    prepared.folder.mkdir(parents=True, exist_ok=True)
    made = prepared.folder / "begun.json"
    wanted = {"program": prepared.program.read_text(), "knobs": prepared.knobs()}
    if not made.is_file() or json.loads(made.read_text()) != wanted:
        made.unlink(missing_ok=True)
        if not model.real:
            _begin(prepared)
        made.write_text(json.dumps(wanted))
    np.savez(prepared.inputs, *model.inputs())
    (prepared.folder / "model.json").write_text(json.dumps(prepared.description(), indent=2))
    return prepared


def _begin(prepared: Prepared) -> None:
    import shutil

    shutil.rmtree(prepared.folder / "run", ignore_errors=True)
    knobs = [f"--knob={name}={value}" for name, value in prepared.knobs().items()]
    sexpgpu("init", prepared.program, "--checkpoint-dir", prepared.folder / "run", *knobs)
