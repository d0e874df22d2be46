"""What is to be hosted: a checkpoint, an export or an ONNX file, shaped by the flags.

Whatever it was, it becomes an ONNX graph with its weights, and what a server has to know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sexpgpu.export.graph.bounds import index_bounds
from sexpgpu.export.graph.document import ModelFile, read_model
from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import Array, DType, concrete
from sexpgpu.export.onnx.build import BuildOptions, ExternalTensor, build_model
from sexpgpu.export.passes.at import INPUT as AT
from sexpgpu.export.passes.at import gather_at
from sexpgpu.export.passes.fold import fold_constants
from sexpgpu.export.passes.independence import prove_independence
from sexpgpu.export.passes.precision import set_precision
from sexpgpu.export.passes.prune import select_outputs
from sexpgpu.export.replacement import MODEL
from sexpgpu.export.weight_file import WEIGHTS
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.model import Precision
from sexpgpu.schemas.tensor_file import MappedTensors
from sexpgpu.serve.protocol import TensorSpec
from sexpgpu.serve.steady import make_steady


@dataclass(frozen=True, slots=True)
class Shaping:
    """How the model is shaped before it is loaded."""

    outputs: tuple[str, ...] = ()
    at: bool = False
    precision: Precision | None = None
    trained: bool = False
    dimensions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """The whole numbers that an input may hold: from `low` up to and without `high`."""

    low: int
    high: int


@dataclass
class Hosted:
    """An ONNX graph, its weights by initializer name, and what a server says and checks.

    `obstacle` says why calls must not run together, empty where they may.  `model` is a path for a
    file that ONNX Runtime reads by itself, `folder` where its external data is.  `layouts` are the
    shapes of a record in the graph, records along their first axis, where they are others than
    callers see.
    `doubtful` says that the graph has operators whose bits depend on where in a vector an element
    lies, so that a few records prove nothing.
    """

    place: str
    model: bytes | Path
    weights: dict[str, Array]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    limits: dict[str, Limits]
    obstacle: str = ""
    checkpoint: str | None = None
    step: int | None = None
    slug: str | None = None
    precision: Precision = "f32"
    layouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    folder: Path | None = None
    doubtful: bool = False


def open_operand(operand: str, shaping: Shaping) -> Hosted:
    """Opens a checkpoint, a location, a directory that export wrote, or an ONNX file.

    Raises what reading it raises, E-EXPORT-002 and -003 where it cannot be shaped so.
    """
    path = Path(operand)
    if path.suffix == ".onnx" and path.is_file():
        from sexpgpu.serve.foreign import open_onnx

        return open_onnx(path, shaping)
    if shaping.dimensions:
        raise SexpgpuError(
            "E-USAGE-001", "--dim fixes a dimension of an ONNX file", came=operand, exit_code=2
        )
    if (path / MODEL).is_file() and not (path / "checkpoint.json").exists():
        return _open_export(path, shaping)
    # It reads locations of every kind and may trace a program: imported where it is needed.
    from sexpgpu.export.subject import from_checkpoint

    subject = from_checkpoint(operand, trained=shaping.trained)
    return host_model(subject.model, subject.read, subject.origin, shaping)


def _open_export(path: Path, shaping: Shaping) -> Hosted:
    model = read_model((path / MODEL).read_bytes(), str(path / MODEL))
    tensors = MappedTensors(path / WEIGHTS)
    for name, value in model.graph.weights.items():
        entry = tensors.entry(name) if name in tensors else None
        if entry is None or entry.shape != concrete(value.type.shape, 1):
            raise SexpgpuError(
                "E-CKPT-003",
                f"the export lacks the weight `{name}` that its model reads",
                place=str(path / WEIGHTS),
                came=str(list(entry.shape)) if entry else None,
                expected=str(value.type),
            )
    return host_model(model, tensors.tensor, str(path), shaping)


def host_model(
    model: ModelFile, read: Callable[[str], Array], place: str, shaping: Shaping
) -> Hosted:
    """A model as a typed graph, `read` giving its weights by path.

    Raises E-EXPORT-002 and -003 where it cannot be shaped so.
    """
    graph = model.graph
    if shaping.outputs:
        graph = select_outputs(graph, shaping.outputs)
    if shaping.at:
        graph = gather_at(graph)
    precision = shaping.precision or model.precision
    lowered = fold_constants(set_precision(graph, precision))
    proto, weights = _lower(make_steady(lowered), read)
    verdict = prove_independence(graph)
    return Hosted(
        place=place,
        model=proto,
        weights=weights,
        inputs=tuple(
            TensorSpec(v.name, concrete(v.type.shape, 1), v.type.dtype) for v in graph.inputs
        ),
        outputs=tuple(
            TensorSpec(name, concrete(v.type.shape, 1), v.type.dtype)
            for name, v in graph.outputs.items()
        ),
        limits=find_limits(graph),
        obstacle="" if verdict.independent else verdict.reason,
        checkpoint=model.checkpoint or place,
        step=model.step,
        slug=model.slug,
        precision=precision,
    )


def find_limits(graph: Graph) -> dict[str, Limits]:
    """What each input of indices may hold; negative ones count from the end, but not in `at`."""
    return {
        name: Limits(0 if name == AT else -length, length)
        for name, length in index_bounds(graph).items()
    }


def _lower(graph: Graph, read: Callable[[str], Array]) -> tuple[bytes, dict[str, Array]]:
    """The ONNX graph, and its weights by the names of their initializers."""
    mark = "weight:"

    def outside(path: str) -> ExternalTensor:
        array = read(path)
        return ExternalTensor(mark + path, 0, array.nbytes, DType.of(array))

    model = build_model(graph, outside, BuildOptions())
    weights = {}
    for initializer in model.graph.initializer:
        for entry in initializer.external_data:
            if entry.key == "location" and entry.value.startswith(mark):
                weights[initializer.name] = _contiguous(read(entry.value[len(mark) :]))
    return model.SerializeToString(), weights


def _contiguous(array: Array) -> Array:
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
