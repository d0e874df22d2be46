"""The directory that an export writes: beside its place first, then there whole, in one moment."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.exported import MODEL, ONNX, WEIGHTS

#: What an export consists of; model.json says who made it.
FILES = frozenset((MODEL, WEIGHTS, ONNX))
_PRODUCER = "sexpgpu"

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class _Made(msgspec.Struct):
    """Who made a model.json."""

    producer: str


def check_replaceable(directory: Path) -> None:
    """Raises E-EXPORT-001 where the path holds anything but an export, an empty directory or
    nothing."""
    if not os.path.lexists(directory):
        return
    if directory.is_symlink():
        came = "a symbolic link"
    elif not directory.is_dir():
        came = "a file"
    else:
        names = {entry.name for entry in directory.iterdir()}
        if not names or (names <= FILES and _is_exports(directory / MODEL)):
            return
        shown = sorted(names - FILES)[:5] or sorted(names)
        came = "a directory with " + ", ".join(shown)
    raise SexpgpuError(
        "E-EXPORT-001",
        f"{directory} was not made by an export, and is left as it is",
        came=came,
        help="choose another directory with -o, or remove this one",
    )


def _is_exports(path: Path) -> bool:
    try:
        made = msgspec.json.decode(path.read_bytes(), type=_Made)
    except (OSError, msgspec.DecodeError):
        return False
    return made.producer.startswith(_PRODUCER)


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """A directory to write into; when the block ends it stands at its place, or else is gone.

    At the place there is at every moment what was there or what was written.  Raises E-EXPORT-001
    as `check_replaceable` does, and E-FILE-001 where the system refuses.
    """
    check_replaceable(directory)
    try:
        parent = directory.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(directory)
        try:
            temporary.mkdir(0o700)
            yield temporary
            _replace(temporary, directory)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise SexpgpuError(
            "E-FILE-001",
            f"{directory} cannot be written",
            came=error.strerror or str(error),
            place=str(error.filename or directory),
        ) from None


def _beside(directory: Path) -> Path:
    """A path beside the directory at which there is nothing."""
    return directory.absolute().parent / f".{directory.name}.{secrets.token_hex(8)}"


def _replace(temporary: Path, directory: Path) -> None:
    """Puts what was written in place, once it is on the disk."""
    for path in (*temporary.iterdir(), temporary):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    temporary.chmod(0o777 & ~_umask())
    check_replaceable(directory)
    if not directory.exists():
        os.rename(temporary, directory)
    elif not _exchange(temporary, directory):
        old = _beside(directory)
        os.rename(directory, old)
        try:
            os.rename(temporary, directory)
        except OSError:
            os.rename(old, directory)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """The two change places in one moment; false where the system cannot do it."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    paths = os.fsencode(a), os.fsencode(b)
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
