"""Copies of remote checkpoints' files, kept by their hash on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sexpgpu.export.storage.folders import cache_directory
from sexpgpu.export.storage.location import Location
from sexpgpu.export.storage.progress import progress
from sexpgpu.schemas.checkpoint import StoredFile
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import PIECE, sha256_of

_SPARE_BYTES = 64 << 20
"""Left free on the disk when a file is fetched."""


def fetch(location: Location, file: StoredFile) -> Path:
    """The path of a verified copy of `file`, which stands at `location`.

    A copy is kept as `<cache>/checkpoints/<SHA-256>/<name>`, so that it serves as long as the file
    stays the same, wherever it stands; one that was damaged is fetched again.  A copy appears whole
    or not at all.  Raises FileNotFoundError where the location has no such file, E-CKPT-003 where
    it is not the one that the checkpoint speaks of, E-LOC-002 where the location cannot be reached
    and E-FILE-001 where the cache cannot be written.
    """
    path = cache_directory() / "checkpoints" / file.sha256 / file.name
    # What the location itself reports is an error of its own: an OSError here is the cache's.
    try:
        if not _is_intact(path, file):
            path.parent.mkdir(parents=True, exist_ok=True)
            _download(location, file, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None
    return path


def _download(location: Location, file: StoredFile, path: Path) -> None:
    if shutil.disk_usage(path.parent).free < file.size + _SPARE_BYTES:
        raise _unwritable(path, f"the disk has no {file.size:,} bytes left")
    digest, size = hashlib.sha256(), 0
    with location.reading() as source, _file_beside(path) as copy:
        with progress(f"fetching {location}", file.size) as advance:
            # One byte more than announced is enough to know that it is another file.
            while size <= file.size and (piece := source.read(min(PIECE, file.size + 1 - size))):
                digest.update(piece)
                copy.write(piece)
                advance(len(piece))
                size += len(piece)
        check_content(file, size, digest.hexdigest(), str(location))


@contextlib.contextmanager
def _file_beside(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the name `path` when the context ends well, and else is removed."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def check_content(file: StoredFile, size: int, sha256: str, place: str) -> None:
    """Refuse with E-CKPT-003 content that is not what checkpoint.json says of `file`."""
    help = "copy the checkpoint again, or name an earlier step"
    if size != file.size:
        raise SexpgpuError(
            "E-CKPT-003",
            f"{file.name} is damaged",
            place=place,
            came=f"more than {file.size:,} bytes" if size > file.size else f"{size:,} bytes",
            expected=f"{file.size:,} bytes",
            help=help,
        )
    if sha256 != file.sha256:
        raise SexpgpuError(
            "E-CKPT-003",
            f"{file.name} is damaged",
            place=place,
            came=f"SHA-256 {sha256}",
            expected=f"SHA-256 {file.sha256}",
            help=help,
        )


def _is_intact(path: Path, file: StoredFile) -> bool:
    try:
        with open(path, "rb") as copy:
            return os.fstat(copy.fileno()).st_size == file.size and sha256_of(copy) == file.sha256
    except FileNotFoundError:
        return False


def _unwritable(path: Path, reason: str) -> SexpgpuError:
    return SexpgpuError(
        "E-FILE-001",
        f"the cache cannot be written: {reason}",
        place=str(path),
        help="set $SEXPGPU_CACHE to a directory with room",
    )
