"""Writing an export: model.json, params.safetensors and model.onnx, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from sexpgpu.export.graph.document import ModelFile, write_model
from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.language.recording import producer
from sexpgpu.export.onnx.build import BuildOptions, ExternalTensor, build_model
from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.export.onnx.opset import choose_opset
from sexpgpu.export.onnx.verify import Verification, verify_model
from sexpgpu.export.onnx.write import check_embeddable, write_onnx
from sexpgpu.export.passes.at import gather_at
from sexpgpu.export.passes.fixed import fix_batch
from sexpgpu.export.passes.fold import fold_constants
from sexpgpu.export.passes.precision import set_precision
from sexpgpu.export.passes.prune import select_outputs
from sexpgpu.export.subject import ReadWeight, Subject
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.model import Precision
from sexpgpu.schemas.tensor_file import MappedTensors, write_tensors

MODEL = "model.json"
WEIGHTS = "params.safetensors"
ONNX = "model.onnx"

Target = Literal["any", "cpu", "cuda"]
_STORED = {DType.F32: "F32", DType.F64: "F64", DType.BF16: "F32", DType.I32: "I32",
           DType.I64: "I64", DType.BOOL: "BOOL"}  # fmt: skip
_DTYPE_OF_STORED = {"F32": DType.F32, "F64": DType.F64, "BF16": DType.BF16, "I32": DType.I32,
                    "I64": DType.I64, "BOOL": DType.BOOL}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How a model is shaped, lowered and stored; None takes the model's own."""

    outputs: tuple[str, ...] = ()
    at: bool = False
    precision: Precision | None = None
    weights: Precision = "f32"
    profile: Profile = "portable"
    opset: int | None = None
    batch: int | None = None
    target: Target = "any"
    embed: bool = False
    verify: bool = True


@dataclass
class Exported:
    """What was written."""

    directory: Path
    model: ModelFile
    weight_bytes: int
    files: dict[str, int] = field(default_factory=dict)
    verification: Verification | None = None
    note: str = ""


def export_model(subject: Subject, directory: Path, options: ExportOptions) -> Exported:
    """Writes an export of the subject to `directory`, beside and then renamed.

    Raises E-EXPORT-001 where the directory is something else's, E-EXPORT-002 and -003 where it
    cannot be shaped so, E-ONNX-001 where an operation has no form in the profile, and E-VERIFY-001
    where the numbers are wrong; then nothing is left.
    """
    model = _shape_model(subject.model, options)
    opset = choose_opset(options.profile, options.opset)
    check_replaceable(directory)
    with _beside(directory) as temporary:
        sha256, read = _write_weights(model.graph, subject.read, temporary / WEIGHTS, options)
        (temporary / MODEL).write_bytes(write_model(model, producer()))
        lowered = lower_graph(model, options.batch)
        build = _Builder(temporary, options, opset, model, sha256)
        build.write(lowered, temporary / ONNX)
        exported = Exported(directory, model, _weight_bytes(read))
        _verify(exported, temporary, lowered, read, build, options)
        read.close()
        exported.files = {p.name: p.stat().st_size for p in sorted(temporary.iterdir())}
        _replace(temporary, directory)
    return exported


def lower_graph(model: ModelFile, batch: int | None = None) -> Graph:
    """The graph that is written as ONNX: its precision in its products, constants folded."""
    graph = set_precision(model.graph, model.precision)
    if batch is not None:
        graph = fix_batch(graph, batch)
    return fold_constants(graph)


def _shape_model(model: ModelFile, options: ExportOptions) -> ModelFile:
    graph = model.graph
    if options.outputs:
        graph = select_outputs(graph, options.outputs)
    if options.at:
        graph = gather_at(graph)
    frozen = {path: source for path, source in model.frozen.items() if path in graph.weights}
    precision = options.precision or model.precision
    return ModelFile(graph, precision, model.checkpoint, model.step, model.slug, frozen)


def _write_weights(
    graph: Graph, read: ReadWeight, path: Path, options: ExportOptions
) -> tuple[str, MappedTensors]:
    """params.safetensors, one weight in memory at a time; its SHA-256, and the file mapped."""
    stored = {
        path: _stored_dtype(value.type.dtype, options) for path, value in graph.weights.items()
    }

    def values(name: str) -> Array:
        array = read(name)
        wanted = _DTYPE_OF_STORED[stored[name]].numpy
        with np.errstate(over="ignore"):
            return array.astype(wanted, copy=False)

    tensors = [
        (name, stored[name], [d for d in value.type.shape if isinstance(d, int)])
        for name, value in graph.weights.items()
    ]
    with path.open("wb") as file:
        written = write_tensors(file, tensors, values)
    return written.sha256, MappedTensors(path)


def _stored_dtype(dtype: DType, options: ExportOptions) -> str:
    if options.weights == "bf16" and dtype in (DType.F32, DType.BF16):
        return "BF16"
    return _STORED[dtype]


class _Builder:
    """Builds model.onnx, and parts of it for checking, over the weights that were written."""

    def __init__(
        self, directory: Path, options: ExportOptions, opset: int, model: ModelFile, sha256: str
    ) -> None:
        self.directory = directory
        self.options = options
        self.header = MappedTensors(directory / WEIGHTS)
        metadata = {
            "producer": producer(),
            "checkpoint": model.checkpoint or "",
            "step": "" if model.step is None else str(model.step),
            "slug": model.slug or "",
            "precision": model.precision,
            "weights_sha256": sha256,
        }
        self.build_options = BuildOptions(
            opset=opset,
            profile=options.profile,
            batch=options.batch,
            native_bf16=options.target == "cuda",
            metadata={f"sexpgpu.{key}": value for key, value in metadata.items() if value},
            name=model.slug or "model",
        )

    def write(self, graph: Graph, path: Path) -> None:
        """Writes the ONNX file of a graph."""
        if self.options.embed:
            check_embeddable(sum(entry.nbytes for entry in self.header.header.tensors.values()))
        source = self._embedded if self.options.embed else self._external
        write_onnx(build_model(graph, source, self.build_options), path)

    def part(self, graph: Graph) -> Path:
        """The ONNX file of a part of the graph; it is removed with the rest."""
        path = self.directory / "part.onnx"
        self.write(graph, path)
        return path

    def _external(self, name: str) -> ExternalTensor:
        entry = self.header.entry(name)
        return ExternalTensor(WEIGHTS, entry.offset, entry.nbytes, _DTYPE_OF_STORED[entry.dtype])

    def _embedded(self, name: str) -> Array:
        return self.header.tensor(name)


def _verify(
    exported: Exported,
    directory: Path,
    graph: Graph,
    tensors: MappedTensors,
    build: _Builder,
    options: ExportOptions,
) -> None:
    if not options.verify:
        exported.note = "not verified: --no-verify"
        return
    if options.target == "cuda" and exported.model.precision == "bf16":
        exported.note = "not verified: bf16 products need a CUDA device"
        return

    def read(path: str) -> Array:
        dtype = exported.model.graph.weights[path].type.dtype
        return tensors.tensor(path).astype(dtype.numpy, copy=False)

    exported.verification = verify_model(
        directory / ONNX,
        graph,
        read,
        build.part,
        fixed=options.batch is not None,
    )
    (directory / "part.onnx").unlink(missing_ok=True)


def _weight_bytes(tensors: MappedTensors) -> int:
    return sum(entry.nbytes for entry in tensors.header.tensors.values())


def check_replaceable(directory: Path) -> None:
    """Raises E-EXPORT-001 where the path holds anything but an export or nothing."""
    if not os.path.lexists(directory):
        return
    if directory.is_dir() and not directory.is_symlink():
        names = {entry.name for entry in directory.iterdir()}
        if not names or (names <= {MODEL, WEIGHTS, ONNX} and MODEL in names):
            return
        came = "a directory with " + ", ".join(sorted(names - {MODEL, WEIGHTS, ONNX})[:5] or names)
    else:
        came = "a symbolic link" if directory.is_symlink() else "a file"
    raise SexpgpuError(
        "E-EXPORT-001",
        f"{directory} was not made by an export, and is left as it is",
        came=came,
        help="choose another directory with -o, or remove this one",
    )


@contextmanager
def _beside(directory: Path) -> Iterator[Path]:
    """A directory beside the one to be written, gone afterwards unless it was renamed."""
    parent = directory.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=parent))
    except OSError as error:
        raise _unwritable(directory, error) from None
    try:
        yield temporary
    except OSError as error:
        raise _unwritable(directory, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(temporary: Path, directory: Path) -> None:
    """Puts the finished directory in place; one that stands there goes in the same moment."""
    temporary.chmod(0o777 & ~_umask())
    for path in temporary.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    check_replaceable(directory)
    if directory.exists():
        old = Path(
            tempfile.mkdtemp(prefix=f".{directory.name}.old.", dir=directory.absolute().parent)
        )
        os.rename(directory, old / "export")
        try:
            os.rename(temporary, directory)
        except OSError:
            os.rename(old / "export", directory)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(temporary, directory)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unwritable(directory: Path, error: OSError) -> SexpgpuError:
    return SexpgpuError(
        "E-FILE-001",
        f"{directory} cannot be written",
        came=error.strerror or str(error),
        place=str(error.filename or directory),
    )
