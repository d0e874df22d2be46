"""A file of data: found, mapped, watched and told from others."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import PIECE, sha256_of

_HASHED_WHOLE = 64 << 20
_SAMPLES = 64
_SAMPLE = 1 << 20


class DataFile:
    """A regular file that is not empty, kept open so that its bytes stay those that were found.

    Raises E-DATA-002 where it cannot be opened and E-DATA-007 where it is empty.
    """

    def __init__(self, name: str) -> None:
        self.path = find(name)
        if not self.path.is_file():
            raise SexpgpuError(
                "E-DATA-002",
                f"`{name}` is {'a folder' if self.path.is_dir() else 'no regular file'}",
                place=name,
                expected="a file",
                help='a folder of images is read by (images "folder" :size 32)'
                if self.path.is_dir()
                else None,
            )
        try:
            self._file = open(self.path, "rb")  # noqa: SIM115 - closed with the object
            self.size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise unreadable(name, error) from None
        if not self.size:
            raise SexpgpuError(
                "E-DATA-007", "the file is empty", place=name, help="name a file with data"
            )

    def __str__(self) -> str:
        return str(self.path)

    def mapped(self) -> Array:
        """Its bytes as u8, read-only: pages are read when they are used."""
        try:
            content = mmap.mmap(self._file.fileno(), self.size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise unreadable(str(self), error) from None
        return np.frombuffer(content, np.uint8)

    def pieces(self, size: int = PIECE) -> Iterator[bytes]:
        """Its bytes from the first on, `size` at a time.  Raises E-DATA-002 and E-DATA-003."""
        try:
            for position in range(0, self.size, size):
                yield os.pread(self._file.fileno(), min(size, self.size - position), position)
        except OSError as error:
            raise unreadable(str(self), error) from None
        self.check()

    def check(self) -> None:
        """Raise E-DATA-003 where the file was cut short since it was opened.

        Reading a mapped page that a file no longer has ends the process, so this comes before.
        """
        size = os.fstat(self._file.fileno()).st_size
        if size < self.size:
            raise SexpgpuError(
                "E-DATA-003",
                "the file was cut short while it was read",
                place=str(self),
                came=f"{size:,} bytes",
                expected=f"{self.size:,} bytes, as when it was opened",
                help="put the file back; the run goes on from its last checkpoint",
            )

    def sha256(self) -> str:
        """The SHA-256 of the whole file."""
        try:
            with open(self.path, "rb") as file:
                return sha256_of(file)
        except OSError as error:
            raise unreadable(str(self), error) from None

    def fingerprint(self) -> str:
        """Its size and SHA-256; that of samples, spread evenly, where it is large."""
        if self.size <= _HASHED_WHOLE:
            return f"{self.size}:{self.sha256()}"
        digest = hashlib.sha256()
        self.check()
        for number in range(_SAMPLES):
            position = (self.size - _SAMPLE) * number // (_SAMPLES - 1)
            try:
                digest.update(os.pread(self._file.fileno(), _SAMPLE, position))
            except OSError as error:
                raise unreadable(str(self), error) from None
        return f"{self.size}:samples:{digest.hexdigest()}"


def find(name: str) -> Path:
    """The path of data that is there.  Raises E-DATA-002."""
    path = Path(name)
    try:
        path.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise unreadable(name, error) from None
        raise SexpgpuError(
            "E-DATA-002",
            f"`{name}` is missing",
            place=name,
            help="relative paths start at the current directory, now "
            f"{Path.cwd()}; run sexpgpu where the data is",
        ) from None
    return path


def unreadable(name: str, error: Exception) -> SexpgpuError:
    """E-DATA-002, with the system's reason."""
    reason = error.strerror if isinstance(error, OSError) else None
    return SexpgpuError("E-DATA-002", f"`{name}` cannot be read: {reason or error}", place=name)


def require_memory(nbytes: int, name: str, help: str) -> None:
    """Refuse with E-DATA-011 to hold more than this machine's whole memory."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return  # a system that does not say
    if nbytes > memory:
        raise SexpgpuError(
            "E-DATA-011",
            "the data does not fit into memory",
            place=name,
            came=f"{nbytes / 2**30:,.1f} GiB",
            expected=f"at most the machine's {memory / 2**30:,.1f} GiB",
            help=help,
        )
