"""Where a run's lines go: a file that is appended to, or an object that is written anew."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Protocol

from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.errors import SexpgpuError

_SPOOL_BYTES = 8 << 20
_PIECE = 1 << 20


class Sink(Protocol):
    """Where the lines go."""

    def append(self, lines: bytes) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class LocalFile:
    """A file on this machine that is appended to; at first its `size` first bytes are kept."""

    def __init__(self, log: Location, size: int) -> None:
        self._log = log
        with self._writing():
            if os.path.lexists(log.path) and os.stat(log.path).st_size != size:
                _cut(log.path, size)
            self._file = os.open(log.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._size = size

    def append(self, lines: bytes) -> None:
        with self._writing():
            try:
                rest = memoryview(lines)
                while rest:
                    rest = rest[os.write(self._file, rest) :]
            except OSError:
                # A disk that is full took a part of a line, perhaps.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._size)
                raise
        self._size += len(lines)

    def sync(self) -> None:
        with self._writing():
            os.fsync(self._file)

    def close(self) -> None:
        with self._writing():
            os.close(self._file)

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return _writing(str(self._log), "make room there: the run resumes from its last checkpoint")


class StoredFile:
    """An object in a store, which nothing can be added to: the lines are gathered on this machine,
    and the object is written anew at first and at every `sync`."""

    def __init__(self, log: Location, size: int) -> None:
        self._log = log
        self._new = False
        self._spool = tempfile.SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115 (`close` does)
        if size:
            with log.reading() as file:
                while size and (piece := file.read(min(_PIECE, size))):
                    self.append(piece)
                    size -= len(piece)
        # A store that takes nothing is known now, and not at the first checkpoint.
        self._new = True
        self.sync()

    def append(self, lines: bytes) -> None:
        with self._gathering():
            self._spool.write(lines)
        self._new = True

    def sync(self) -> None:
        if not self._new:
            return
        with self._log.writing() as file:
            self._spool.seek(0)
            while piece := self._spool.read(_PIECE):
                file.write(piece)
        self._new = False

    def close(self) -> None:
        with self._gathering():
            self._spool.close()

    def _gathering(self) -> contextlib.AbstractContextManager[None]:
        return _writing(tempfile.gettempdir(), "set $TMPDIR to a directory with room")


@contextlib.contextmanager
def _writing(place: str, help: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SexpgpuError(
            "E-FILE-001",
            f"the log of the run's metrics cannot be written: {error.strerror or error}",
            place=place,
            help=help,
        ) from None


def _cut(path: str, size: int) -> None:
    """Keep the first bytes of a file: they are written beside it, and take its name."""
    directory, name = os.path.split(path)
    beside = os.path.join(directory, f".{name}.new")
    try:
        with open(path, "rb") as old, open(beside, "wb") as new:
            while size and (piece := old.read(min(_PIECE, size))):
                new.write(piece)
                size -= len(piece)
            new.flush()
            os.fsync(new.fileno())
        shutil.copymode(path, beside)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
