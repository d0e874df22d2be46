"""What is to be hosted: a checkpoint, an export or an ONNX file, shaped by the flags.

Whatever it was, it becomes an ONNX graph with its weights, and what a server has to know of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.exported import MODEL
from sexpgpu.schemas.precision import Precision
from sexpgpu.serve.protocol import TensorSpec


class Shaping(msgspec.Struct, frozen=True):
    """How the model is shaped before it is loaded."""

    outputs: tuple[str, ...] = ()
    at: bool = False
    precision: Precision | None = None
    trained: bool = False
    dimensions: Mapping[str, int] = msgspec.field(default_factory=dict)


class Limits(msgspec.Struct, frozen=True):
    """The whole numbers that an input may hold: from `low` up to and without `high`.

    Where the elements of a record differ in that, every number within these is good for each, and
    `each` says for every element below which number it is, and from whose negative on; 0 is any.
    """

    low: int
    high: int
    each: tuple[int, ...] = ()


class Hosted(msgspec.Struct):
    """An ONNX graph, its weights by initializer name, and what a server says and checks.

    `obstacle` says why calls must not run together, empty where they may.  `model` is a path for a
    file that ONNX Runtime reads by itself, `folder` where the files of weights are that it reads:
    they are not among `weights`, which are handed to it.  `layouts` are the
    shapes of a record in the graph, records along their first axis, where they are others than
    callers see.
    `doubtful` says that the graph has operators whose bits depend on where in a vector an element
    lies, so that a few records prove nothing.  `weight_paths` are the weights' names in the model,
    `identity` what tells it from every other, empty where that is not known.  `files` are those
    that it was read from, as `file_version` knew them.
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
    layouts: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    folder: str = ""
    doubtful: bool = False
    weight_paths: dict[str, str] = msgspec.field(default_factory=dict)
    identity: bytes = b""
    files: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)

    def check_unchanged(self) -> None:
        """After loading: what ONNX Runtime read by itself is what was looked at before.

        Raises E-FILE-001 where another file has taken the place of one.
        """
        for place, version in self.files.items():
            try:
                now = file_version(os.stat(place))
            except OSError:
                now = ()
            if now != version:
                raise SexpgpuError(
                    "E-FILE-001",
                    "the file changed while it was loaded",
                    place=place,
                    help="start again when nobody writes there",
                )


def file_version(found: os.stat_result) -> tuple[int, ...]:
    """What tells a file from another in its place, and from itself when it was written to."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def open_operand(operand: str, shaping: Shaping) -> Hosted:
    """Opens a checkpoint, a location, a directory that export wrote, or an ONNX file.

    Raises what reading it raises, E-FILE-001 for a path that ONNX Runtime cannot be told, and
    E-EXPORT-002 and -003 where it cannot be shaped so.
    """
    path = Path(operand)
    check_name(path.absolute())
    if path.suffix == ".onnx" and os.path.isfile(path):
        from sexpgpu.serve.foreign import open_onnx

        return open_onnx(path, shaping)
    if shaping.dimensions:
        raise SexpgpuError(
            "E-USAGE-001", "--dim fixes a dimension of an ONNX file", came=operand, exit_code=2
        )
    from sexpgpu.serve.prepared import open_export, open_stored

    if os.path.isfile(path / MODEL) and not os.path.exists(path / "checkpoint.json"):
        return open_export(path, shaping)
    return open_stored(operand, shaping)


def unreadable(path: Path, error: OSError) -> SexpgpuError:
    """A file that the system does not give."""
    return SexpgpuError(
        "E-FILE-001", f"cannot read the file: {error.strerror or error}", place=str(path)
    )


def check_name(path: Path) -> None:
    """Raises E-FILE-001 where a path is not UTF-8, as ONNX Runtime takes it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise SexpgpuError(
            "E-FILE-001",
            "the path is not UTF-8, in which ONNX Runtime takes it",
            place=ascii(str(path)),
            help="give the file or its folder another name",
        ) from None
