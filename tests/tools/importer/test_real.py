"""Models that people use, imported from their files: what they give is what transformers gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.subject import from_program
from sexpgpu.tools.fetch_models import fetch_model
from sexpgpu.tools.importer.writing import Imported, import_model
from support.commands import runner
from support.real import EXAMPLES, relative_difference

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.real

WINDOW = 24


def exported(imported: Imported, folder: Path) -> Session:
    subject = from_program(imported.program, knobs={"window": WINDOW})
    export_model(subject, folder / "export", ExportOptions(verify=False))
    return Session(folder / "export" / "model.onnx")


def texts(vocabulary: int) -> tuple[Array, Array, Array]:
    """Tokens, where they are some, and types, of records of several lengths."""
    ids = np.random.default_rng(3).integers(5, vocabulary, (3, WINDOW)).astype(np.int32)
    mask = np.arange(WINDOW) < np.array([[WINDOW], [9], [2]])
    return ids * mask, mask, ((np.arange(WINDOW) > 5) * mask).astype(np.int32)


def theirs(model: Any, ids: Array, mask: Array, types: Array) -> Any:
    tensors = [torch.from_numpy(array.astype(np.int64)) for array in (ids, mask, types)]
    with torch.no_grad():
        return model(input_ids=tensors[0], attention_mask=tensors[1], token_type_ids=tensors[2])


def test_minilm(tmp_path: Path) -> None:
    folder = fetch_model("minilm")["config.json"].parent
    imported = import_model(folder, tmp_path / "minilm.sx")
    assert (imported.notes, imported.unknown, imported.unused) == ([], [], [])
    inputs = texts(30522)
    names = [f"inputs.{i}" for i in range(3)]
    found = exported(imported, tmp_path).run(dict(zip(names, inputs, strict=True)))
    model = transformers.BertModel.from_pretrained(folder).eval()
    expected, seen = theirs(model, *inputs), inputs[1]
    hidden = expected.last_hidden_state.numpy()
    assert relative_difference(found["hidden"][seen], hidden[seen]) < 1e-5
    assert relative_difference(found["pooled"], expected.pooler_output.numpy()) < 1e-5


def test_the_page_shows_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of docs/importing.md, what they print, and the program."""
    page = (EXAMPLES.parent / "docs" / "importing.md").read_text()
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    folder = fetch_model("minilm")["config.json"].parent
    monkeypatch.chdir(tmp_path)
    Path("minilm").symlink_to(folder)
    run = runner(capsys)
    first, second = blocks["sh"].splitlines()
    status, out, err = run(*first.split()[1:])
    assert (status, out, err) == (0, blocks["text"], "")
    assert Path("minilm.sx").read_text() == blocks["lisp"]
    status, out, _ = run(*second.split()[1:], "--no-verify")
    assert status == 0
    assert "inputs.0 [1, 64] i32" in out


def test_rxnmapper(tmp_path: Path) -> None:
    """An ALBERT whose weights are in a checkpoint of PyTorch's."""
    folder = fetch_model("rxnmapper")["config.json"].parent
    imported = import_model(folder, tmp_path / "rxnmapper.sx")
    assert (imported.notes, imported.unknown) == ([], [])
    assert imported.unused == ["albert.pooler.weight", "albert.pooler.bias"]
    inputs = texts(591)
    names = [f"inputs.{i}" for i in range(3)]
    found = exported(imported, tmp_path).run(dict(zip(names, inputs, strict=True)))
    model = transformers.AlbertForMaskedLM.from_pretrained(folder).eval()
    logits = theirs(model, *inputs).logits.numpy()[inputs[1]]
    assert relative_difference(found["logits"][inputs[1]], logits) < 1e-5


def test_smollm2(tmp_path: Path) -> None:
    """A Llama of 4 bits from a GGUF file computes what the example does, of the same tensors.

    The example is held against transformers on the same file in tests/examples/test_smollm2.py.
    """
    file = fetch_model("smollm2")["model.gguf"]
    imported = import_model(file, tmp_path / "smollm2.sx")
    assert (imported.notes, imported.unknown, imported.unused) == ([], [], [])
    assert imported.numbers == 134_515_008
    knobs = {"weights": str(file), "window": WINDOW}
    found, example = (
        trace_alone(compile_program(path, None, knobs))
        for path in (imported.program, EXAMPLES / "smollm2.sx")
    )
    keys, expected = (
        {path: parameter.key for path, parameter in alone.parameters.items()}
        for alone in (found, example)
    )
    assert list(keys.values()) == list(expected.values())
    steps, wanted = (
        [(node.operation.name, node.attributes, [v.type for v in node.inputs]) for node in nodes]
        for nodes in (found.graph.nodes, example.graph.nodes)
    )
    assert steps == wanted
