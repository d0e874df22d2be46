"""What is run: every example's export, with inputs and the outputs that it is to give.

A case is a folder that a runner reads: model.onnx with its weights, case.json (the names of inputs
and outputs in order, and the batches), and for each batch `inputs-<batch>.safetensors` and
`outputs-<batch>.safetensors`, the latter by the model's meaning in NumPy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.graph.document import read_model
from sexpgpu.export.graph.graph import Graph, Value
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array, concrete
from sexpgpu.export.initial import write_initial
from sexpgpu.export.onnx.examples import Examples
from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.export.subject import Subject, from_checkpoint, from_program
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.exported import MODEL, ONNX, WEIGHTS
from sexpgpu.schemas.tensor_file import MappedTensors
from sexpgpu.tools.fetch_models import fetch_model
from sexpgpu.tools.model_packages import MODELS
from sexpgpu.tools.portability import ROOT, WORK
from sexpgpu.tools.portability.runtimes.exchange import write_tensors

#: How a form may be made one that more runtimes take.
Change = Literal["unroll", "batch"]

EXAMPLES = ROOT / "examples"

#: Numbers of records that a case is run on: that the batch is a symbol is part of what is tried.
BATCHES = (1, 3)


@dataclass(frozen=True, slots=True)
class Form:
    """How a program is exported: its profile, whether its steps are written out, and its batch
    where that is fixed."""

    profile: Profile = "portable"
    unroll: bool = False
    batch: int | None = None

    def __str__(self) -> str:
        unroll = "-unroll" if self.unroll else ""
        return f"{self.profile}{unroll}" + ("" if self.batch is None else f"-batch-{self.batch}")

    @property
    def words(self) -> str:
        """What is not as it is by default."""
        batch = "" if self.batch is None else f"batch {self.batch}"
        return ", ".join(word for word in ("unrolled" if self.unroll else "", batch) if word)

    def changed(self, change: Change) -> Form:
        """The form with the steps written out, or with a batch of one."""
        return replace(self, unroll=True) if change == "unroll" else replace(self, batch=1)


@dataclass(frozen=True, slots=True)
class Case:
    """An export of an example in a folder, as the module says; `key` is another when it is."""

    name: str
    form: Form
    folder: Path
    key: str

    @property
    def batches(self) -> list[int]:
        """The batches that it is run on."""
        return list(json.loads((self.folder / "case.json").read_text())["batches"])

    @property
    def operators(self) -> set[str]:
        """The operators of the model, those of bodies left out."""
        model = onnx.load(self.folder / ONNX, load_external_data=False)
        return {node.op_type for node in model.graph.node}


def find_programs(folder: Path = EXAMPLES) -> dict[str, Path]:
    """Every program of the folder by name."""
    return {path.stem: path for path in sorted(folder.glob("*.sx"))}


def prepare(program: Path, form: Form, work: Path = WORK) -> Case:
    """The program's case, which is made where it is not there as it would be made now.

    Raises what exporting the program raises, E-INFER-001 where it has no model alone, E-FETCH-001.
    """
    folder = work / "cases" / program.stem / str(form)
    key = _key(program, form)
    stamp = folder / "key"
    if not stamp.exists() or stamp.read_text() != key:
        # Made beside and then renamed: another process may make the same.
        made, begun = (folder.with_name(f".{form}.{os.getpid()}{end}") for end in ("", ".begun"))
        try:
            # What examples load stands below the project, and what others load where they say.
            with contextlib.chdir(ROOT if program.parent == EXAMPLES else Path.cwd()):
                _fetch_weights(program)
                subject = _subject(program, begun)
                options = ExportOptions(
                    profile=form.profile, unroll=form.unroll, batch=form.batch, verify=False
                )
                export_model(subject, made, options)
            _write_case(made, program.stem, form, work / "expected")
            (made / "key").write_text(key)
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
        finally:
            for place in (made, begun):
                shutil.rmtree(place, ignore_errors=True)
    return Case(program.stem, form, folder, key)


def _subject(program: Path, begun: Path) -> Subject:
    """The program with the weights that it loads, else as it begins before training."""
    try:
        return from_program(program)
    except SexpgpuError as error:
        if error.code != "E-EXPORT-004":
            raise
    write_initial(program, str(begun))
    subject = from_checkpoint(str(begun), trained=True)
    # Its place is another each time; the case is not.
    subject.model.checkpoint = None
    return replace(subject, read=lambda path: _uncovered(path, subject.read(path)), kept=None)


def _uncovered(path: str, weight: Array) -> Array:
    """A weight; a matrix that begins as zeros, which hides all that comes before it, is random."""
    if weight.ndim < 2 or weight.dtype.kind != "f" or weight.any():
        return weight
    generator = np.random.default_rng(list(path.encode()))
    return np.asarray(0.02 * generator.standard_normal(weight.shape), weight.dtype)


def _fetch_weights(program: Path) -> None:
    """Fetches what the program's knobs call `build/models/<name>/…`."""
    for name in sorted(set(re.findall(r'"build/models/([\w.-]+)/', program.read_text()))):
        if name in MODELS:
            fetch_model(name)


def _write_case(place: Path, name: str, form: Form, expected: Path) -> None:
    """Writes what a runner and the comparison read beside the export."""
    model = read_model((place / MODEL).read_bytes(), MODEL)
    batches = [form.batch] if form.batch is not None else list(BATCHES)
    if not _has_batch(model.graph):
        batches = batches[:1]
    about = {
        "name": name,
        "form": str(form),
        "batches": batches,
        "fixed": form.batch is not None,
        "inputs": [_about(value.name, value) for value in model.graph.inputs],
        "outputs": [_about(name, value) for name, value in model.graph.outputs.items()],
    }
    meaning = hashlib.sha256((place / MODEL).read_bytes() + _digest([place / WEIGHTS]))
    for batch in batches:
        inputs, outputs = _evaluated(place, model.graph, batch, expected / meaning.hexdigest())
        shutil.copyfile(inputs, place / f"inputs-{batch}.safetensors")
        shutil.copyfile(outputs, place / f"outputs-{batch}.safetensors")
    (place / "case.json").write_text(json.dumps(about, indent=2))


def _evaluated(place: Path, graph: Graph, batch: int, kept: Path) -> tuple[Path, Path]:
    """Inputs of a batch and what they give, which is kept under the model's and weights' hash."""
    paths = kept / f"inputs-{batch}.safetensors", kept / f"outputs-{batch}.safetensors"
    if not paths[1].exists():
        examples = Examples(graph)
        with MappedTensors(place / WEIGHTS) as tensors:

            def read(name: str) -> Array:
                stored: Array = np.asarray(tensors.tensor(name))
                return stored.astype(graph.weights[name].type.dtype.numpy, copy=False)

            while True:
                inputs = examples.draw(("random",) * batch)
                try:
                    outputs = evaluate(graph, inputs, read, batch)
                    break
                except SexpgpuError as error:
                    if error.code != "E-VALUE-001" or not examples.narrow():
                        raise
        kept.mkdir(parents=True, exist_ok=True)
        write_tensors(paths[0], {name: _bits(array) for name, array in inputs.items()})
        write_tensors(paths[1], {name: _bits(array) for name, array in outputs.items()})
    return paths


def _bits(array: Array) -> Array:
    """The array, or the bits of bf16, which NumPy by itself does not have."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _about(name: str, value: Value) -> dict[str, Any]:
    """Its shape has null for the batch, where that is not fixed."""
    shape = [d if isinstance(d, int) else None for d in value.type.shape]
    multiples = [None if isinstance(d, int) else d.multiple for d in value.type.shape]
    return {
        "name": name,
        "dtype": value.type.dtype.value,
        "shape": shape,
        "batch_multiples": multiples,
        "example": list(concrete(value.type.shape, 1)),
    }


def _has_batch(graph: Graph) -> bool:
    return any(not isinstance(d, int) for value in graph.inputs for d in value.type.shape)


def _key(program: Path, form: Form) -> str:
    """What the case is made of: the program, this project's exporter, and how it is exported."""
    sources = [program]
    for folder in ("export", "schemas"):
        sources += [p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".sx")]
    own = [Path(__file__), Path(__file__).parent / "runtimes" / "exchange.py"]
    return hashlib.sha256(_digest([*sources, *own]) + str(form).encode()).hexdigest()


def _digest(paths: Iterable[Path]) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(set(paths)):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.digest()
