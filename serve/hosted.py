"""What is to be hosted: a checkpoint, an export or an ONNX file, shaped by the flags.

Whatever it was, it becomes an ONNX graph with its weights, and what a server has to know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.exported import MODEL
from sexpgpu.schemas.model import Precision
from sexpgpu.serve.protocol import TensorSpec


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
    lies, so that a few records prove nothing.  `weight_paths` are the weights' names in the model.
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
    weight_paths: dict[str, str] = field(default_factory=dict)


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
        from sexpgpu.serve.prepared import open_export

        return open_export(path, shaping)
    # It reads locations of every kind and may trace a program: imported where it is needed.
    from sexpgpu.export.subject import from_checkpoint
    from sexpgpu.serve.lowering import host_model

    subject = from_checkpoint(operand, trained=shaping.trained)
    return host_model(subject.model, subject.read, subject.origin, shaping)
