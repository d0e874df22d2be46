"""What is to be exported: a model and its weights, from a checkpoint, a program, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sexpgpu.export.graph.document import ModelFile, read_model
from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import Program, compile_program
from sexpgpu.export.language.recording import moved_lines, recompile, record, record_model
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.storage.checkpoint import StoredCheckpoint, open_checkpoint
from sexpgpu.export.storage.sources import open_source
from sexpgpu.export.storage.weights import Weights
from sexpgpu.export.weight_file import KeptFile
from sexpgpu.schemas.errors import SexpgpuError

#: The values of a weight by path, in its dtype; bf16 may come as f32, which is exact.
ReadWeight = Callable[[str], Array]


@dataclass
class Subject:
    """A model, its weights, and where they come from, as it is shown to a user.

    `kept` is the checkpoint's file that `read` reads, where it reads no other.
    """

    model: ModelFile
    read: ReadWeight
    origin: str
    moved: list[str] = field(default_factory=list)
    kept: KeptFile | None = None


def from_checkpoint(where: str, *, trained: bool) -> Subject:
    """The model that a checkpoint holds.

    Raises E-CKPT-004 where it holds none, and what reading a checkpoint raises.
    """
    return from_stored(open_checkpoint(where), trained=trained)


def from_stored(stored: StoredCheckpoint, *, trained: bool) -> Subject:
    """The same, of a checkpoint that is open."""
    model = read_model(stored.model(), str(stored.location / "model.json"))
    _place(model, stored)
    weights = _checked(stored.weights(trained=trained), stored, model)
    return Subject(model, weights.array, str(stored.location), kept=_kept(stored, weights))


def from_program_and_checkpoint(path: Path, where: str, *, trained: bool) -> Subject:
    """The program's model under the variant and knobs of a checkpoint, with its weights.

    Raises E-CKPT-005 where the program is another than the checkpoint's, E-INFER-001 where its
    model cannot run alone.
    """
    # Imported where it is used: who serves an export has no use for it.
    from concurrent.futures import ThreadPoolExecutor

    stored = open_checkpoint(where)
    document = stored.document
    with ThreadPoolExecutor(1) as hasher:
        # The file of weights is hashed while the program is evaluated.
        opening = hasher.submit(stored.weights, trained=trained)
        program = recompile(path, document, str(stored.location))
        model = record_model(trace_alone(program), document, str(stored.location))
    weights = _checked(opening.result(), stored, model)
    moved = moved_lines(program, document)
    return Subject(model, weights.array, str(stored.location), moved, _kept(stored, weights))


def from_program(
    path: Path, variant: str | None = None, knobs: Mapping[str, object] | None = None
) -> Subject:
    """A program whose every parameter is read from a file.  Raises E-EXPORT-004 else."""
    program = compile_program(path, variant, knobs)
    alone = trace_alone(program)
    homeless = [name for name, p in alone.parameters.items() if p.load is None]
    if homeless:
        shown = ", ".join(f"`{name}`" for name in homeless[:6])
        more = f" and {len(homeless) - 6} more" if len(homeless) > 6 else ""
        one = len(homeless) == 1
        raise SexpgpuError(
            "E-EXPORT-004",
            "a parameter has no values" if one else f"{len(homeless)} parameters have no values",
            place=str(path),
            came=shown + more,
            help="give a checkpoint with --checkpoint, or load them with `:load`",
        )
    model = record_model(alone, record(program, 0))
    return Subject(model, _loaded(program, alone.parameters), str(path))


def _place(model: ModelFile, stored: StoredCheckpoint) -> None:
    """Says in the model which checkpoint it is from; a copied one knows its new place so."""
    model.checkpoint = str(stored.location)
    model.step = stored.document.step
    model.slug = stored.document.slug


def _checked(weights: Weights, stored: StoredCheckpoint, model: ModelFile) -> Weights:
    """The checkpoint's weights, among which those of the model are found to be."""
    known = set(weights.keys())
    for path, value in model.graph.weights.items():
        expected = (value.type.dtype.value, list(value.type.shape))
        if path not in known:
            raise _no_weight(stored, path, "no such parameter", str(value.type))
        found = weights.parameter(path)
        if (found.dtype, found.shape) != expected:
            raise _no_weight(stored, path, f"{found.shape} {found.dtype}", str(value.type))
    return weights


def _kept(stored: StoredCheckpoint, weights: Weights) -> KeptFile | None:
    """The one file of its own that the weights are read from, where there is but one."""
    if len(weights.files) != 1:
        return None
    (file,) = weights.files
    recorded = stored.document.file(file.path.name)
    return None if recorded is None else KeptFile(file.path, recorded.sha256)


def _no_weight(stored: StoredCheckpoint, path: str, came: str, expected: str) -> SexpgpuError:
    return SexpgpuError(
        "E-CKPT-005",
        f"the checkpoint's model reads a weight `{path}` that it does not hold so",
        place=str(stored.location),
        came=came,
        expected=expected,
    )


def _loaded(program: Program, parameters: Mapping[str, Parameter]) -> ReadWeight:
    """Weights from `:load` files; each is checked at once, and read when asked for."""
    for path, parameter in parameters.items():
        assert parameter.load is not None
        source = open_source(parameter.load)
        try:
            source.check(parameter.key or path, parameter.type.dtype, _shape(parameter))
        except SexpgpuError as error:
            error.notes.append(f"it is to be the parameter `{path}` of {program.path}")
            raise

    def read(path: str) -> Array:
        parameter = parameters[path]
        assert parameter.load is not None
        source = open_source(parameter.load)
        return source.read(parameter.key or path, parameter.type.dtype, _shape(parameter))

    return read


def _shape(parameter: Parameter) -> list[int]:
    return [d for d in parameter.type.shape if isinstance(d, int)]
