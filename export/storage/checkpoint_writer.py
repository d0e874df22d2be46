"""Writing a checkpoint: a step appears whole or not at all, and nothing is ever removed."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from sexpgpu.export.graph.types import DType
from sexpgpu.export.storage.checkpoint import step_name
from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.checkpoint import (
    AVERAGES,
    DOCUMENT,
    MODEL,
    OPTIMIZER,
    PARAMETERS,
    STORED_DTYPES,
    Checkpoint,
    Parameter,
    StoredFile,
    write_checkpoint,
)
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.safetensors import DTYPES
from sexpgpu.schemas.tensor_file import Array, write_tensors


@dataclass(frozen=True, slots=True)
class TensorSet:
    """Tensors to write: their declared types, and how to get each one's values in turn."""

    parameters: list[Parameter]
    read: Callable[[str], Array]

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> TensorSet:
        """Arrays that are in memory."""
        parameters = [
            Parameter(path, list(array.shape), DType.of(array).value)
            for path, array in arrays.items()
        ]
        return cls(parameters, arrays.__getitem__)


def save_checkpoint(
    location: Location,
    document: Checkpoint,
    params: TensorSet,
    *,
    averages: TensorSet | None = None,
    optimizer: TensorSet | None = None,
    model: bytes | None = None,
) -> Location:
    """Write `<location>/step-<n>` for `document.step`; gives the step's location.

    `document` needs no `files` and no `seal`.  On this machine the step is written beside and
    renamed when it is on the disk; on an object store checkpoint.json goes last.  A run killed at
    any moment leaves the step before as the newest.  A bf16 parameter is stored as f32.  Raises
    E-FILE-001 where the step exists, E-LOC-002 where the location cannot be written.
    """
    target = location / step_name(document.step)
    contents: list[tuple[str, TensorSet | bytes]] = [(PARAMETERS, params)]
    if averages is not None:
        contents.append((AVERAGES, averages))
    if optimizer is not None:
        contents.append((OPTIMIZER, optimizer))
    if model is not None:
        contents.append((MODEL, model))
    if not location.is_local:
        if (target / DOCUMENT).exists():
            raise _exists(target)
        _write(target, document, contents)
        return target
    location.make_directory()
    if os.path.lexists(target.path):
        raise _exists(target)
    beside = _directory_beside(location, document.step)
    _write(beside, document, contents)
    try:
        _sync_directory(beside.path)
        # Renaming onto a directory with files in it fails, should another run have made it.
        os.rename(beside.path, target.path)
        _sync_directory(location.path)
    except OSError as error:
        if os.path.lexists(target.path):
            raise _exists(target) from None
        raise _unwritable(target, error) from None
    return target


def _write(
    directory: Location, document: Checkpoint, contents: Iterable[tuple[str, TensorSet | bytes]]
) -> None:
    files = [_write_file(directory / name, content) for name, content in contents]
    sealed = write_checkpoint(msgspec.structs.replace(document, files=files))
    with (directory / DOCUMENT).writing() as file:
        file.write(sealed)


def _write_file(location: Location, content: TensorSet | bytes) -> StoredFile:
    with location.writing() as file:
        if isinstance(content, bytes):
            file.write(content)
            return StoredFile(location.name, len(content), hashlib.sha256(content).hexdigest())
        stored = {
            parameter.path: STORED_DTYPES[parameter.dtype] for parameter in content.parameters
        }
        written = write_tensors(
            file,
            [(each.path, stored[each.path], each.shape) for each in content.parameters],
            lambda path: content.read(path).astype(DTYPES[stored[path]], copy=False),
        )
        return StoredFile(location.name, written.header.size, written.sha256)


def _directory_beside(location: Location, step: int) -> Location:
    """A new directory whose name no reader takes for a step."""
    beside = location / f".{step_name(step)}.{secrets.token_hex(4)}"
    try:
        os.mkdir(beside.path)
    except OSError as error:
        raise _unwritable(beside, error) from None
    return beside


def _sync_directory(path: str) -> None:
    """Put the directory's entries on the disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _exists(target: Location) -> SexpgpuError:
    return SexpgpuError(
        "E-FILE-001",
        f"{target.name} exists already, and no checkpoint is ever overwritten",
        place=str(target),
        help="resume from it, move it away, or name another location",
    )


def _unwritable(location: Location, error: OSError) -> SexpgpuError:
    return SexpgpuError(
        "E-FILE-001",
        f"the checkpoint cannot be written: {error.strerror or error}",
        place=str(location),
    )
