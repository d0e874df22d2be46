"""Small models of transformers with random weights: saved, imported, exported, and run by both."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.subject import from_program
from sexpgpu.tools.importer.writing import Imported, import_model
from support.real import relative_difference

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Nothing is asked of the network.
os.environ["HF_HUB_OFFLINE"] = "1"

#: The largest relative difference; both compute in f32.
TOLERANCE = 1e-5

#: A decoder's sizes: heads that are not the width's share, fewer of keys, nothing that divides.
DECODER = {
    "vocab_size": 37,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
WINDOW = 12


def seeded(model: Any, seed: int = 0) -> Any:
    """The model with weights that hide nothing: no bias is 0, no gain is 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(noise * 0.2)
    return model.eval()


def made(kind: str, config: Any, seed: int = 0) -> Any:
    """A model of transformers by its class, attention written out."""
    config._attn_implementation = "eager"
    return seeded(getattr(transformers, kind)(config), seed)


class Case:
    """A model that was saved and imported."""

    def __init__(self, model: Any, folder: Path, *, save: bool = True, **knobs: object) -> None:
        self.model = model
        self.folder = folder
        if save:
            model.save_pretrained(folder / "model")
        self.imported = self.again()
        self._knobs = knobs
        self._session: Session | None = None

    def again(self) -> Imported:
        """Imports the model as it is in its folder now."""
        return import_model(self.folder / "model", self.folder / "program.sx", force=True)

    @property
    def text(self) -> str:
        """The program without the knob of its weights' path."""
        text = self.imported.program.read_text()
        return re.sub(r"\(defknob weights\s[^)]*\)\n", "", text)

    @property
    def session(self) -> Session:
        if self._session is None:
            subject = from_program(self.imported.program, knobs=self._knobs)
            export_model(subject, self.folder / "export", ExportOptions(verify=False))
            self._session = Session(self.folder / "export" / "model.onnx")
        return self._session

    def run(self, *inputs: Array) -> dict[str, Array]:
        """What the export gives."""
        names = [f"inputs.{i}" for i in range(len(inputs))] if len(inputs) > 1 else ["inputs"]
        return self.session.run(dict(zip(names, inputs, strict=True)))

    def theirs(self, **inputs: Array) -> Any:
        """What transformers gives."""
        tensors = {
            name: torch.from_numpy(a.astype(np.int64) if a.dtype.kind in "ib" else a)
            for name, a in inputs.items()
        }
        with torch.no_grad():
            return self.model(**tensors)

    def check_language_model(self, window: int = WINDOW) -> None:
        """Logits of every position of some records are those of transformers."""
        ids = tokens(self.model.config.vocab_size, window)
        check(self.run(ids)["output"], self.theirs(input_ids=ids).logits)

    def check_classes_of_texts(self, window: int = WINDOW) -> None:
        """Scores of the last position are those that transformers gives of the whole record."""
        for ids in tokens(self.model.config.vocab_size, window)[:, None]:
            check(self.run(ids)["logits"][:, -1], self.theirs(input_ids=ids).logits)

    def check_answers(self, *inputs: Array) -> None:
        """Scores of where an answer begins and ends are those of transformers."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        found = self.run(*inputs)
        expected = self.theirs(**dict(zip(names, inputs, strict=False)))
        seen = inputs[1] if len(inputs) > 1 else np.ones(inputs[0].shape, bool)
        check(found["start"][seen], expected.start_logits[seen])
        check(found["end"][seen], expected.end_logits[seen])


def llama(folder: Path, **options: Any) -> Case:
    """A small Llama."""
    config = transformers.LlamaConfig(**{**DECODER, **options})
    return Case(made("LlamaForCausalLM", config), folder, window=WINDOW)


def change(case: Case, **values: Any) -> None:
    """Writes other values into config.json, and imports it again; None takes a key away."""
    path = case.folder / "model" / "config.json"
    known = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({key: value for key, value in known.items() if value is not None}))
    case.imported = case.again()


def rewrite(case: Case, **tensors: Array | None) -> None:
    """Writes other tensors into the file, and imports it again."""
    path = case.folder / "model" / "model.safetensors"
    known: dict[str, Array | None] = {**load_file(path), **tensors}
    save_file({key: a for key, a in known.items() if a is not None}, path, {"format": "pt"})
    case.imported = case.again()


def reload(case: Case) -> None:
    """transformers' own reading of the files as they are now."""
    again = type(case.model).from_pretrained(case.folder / "model", dtype=torch.float32)
    case.model = again.eval()


def tokens(vocabulary: int, window: int = WINDOW, records: int = 3) -> Array:
    """Random tokens, a record a row."""
    drawn = np.random.default_rng(1).integers(0, vocabulary, (records, window))
    return drawn.astype(np.int32)


def check(found: Array, expected: Any) -> None:
    """Two results are one up to rounding."""
    assert relative_difference(found, expected.detach().numpy()) < TOLERANCE
