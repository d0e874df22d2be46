"""What a server found out before, kept in the user's cache, so that the next start is quicker.

An entry holds everything that it was made from, to be compared byte by byte, and a sum of what was
made: it is right, or it is made again.  A folder in which anyone else could have put it is neither
read nor written.
"""

from __future__ import annotations

import os
import re
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from sexpgpu.export.storage.folders import cache_directory
from sexpgpu.schemas.errors import SexpgpuError

#: Entries of a kind that are kept; the oldest go first.
_ENTRIES = 64
#: Larger ones are few, and of models that take long to load anyway.
_LARGEST = 64 << 20

_NAME = re.compile(r"[0-9a-f]{8}")
#: What an entry is called until it is whole, with the process that writes it.
_BEGUN = re.compile(r"\.([0-9]+)-[0-9]+")


class _Entry(msgspec.Struct):
    made_from: bytes
    made: bytes
    sum: int


class Kept:
    """An entry of some kind, by what it is made from; there may be none yet."""

    def __init__(self, kind: str, made_from: bytes) -> None:
        self._made_from = made_from
        self._kind = kind
        self._name = f"{zlib.crc32(made_from):08x}"

    def read(self) -> bytes | None:
        """What was made; None where there is no entry."""
        try:
            with _opened(self._kind) as folder:
                entry = msgspec.msgpack.decode(_read(folder, self._name), type=_Entry)
        except (OSError, msgspec.DecodeError):
            return None
        whole = entry.made_from == self._made_from and entry.sum == zlib.crc32(entry.made)
        return entry.made if whole else None

    def write(self, made: bytes) -> None:
        """Makes an entry, in place of the oldest; where it cannot be written there is none."""
        data = msgspec.msgpack.encode(_Entry(self._made_from, made, zlib.crc32(made)))
        if len(data) > _LARGEST:
            return
        with suppress(OSError), _opened(self._kind, make=True) as folder:
            _write(folder, self._name, data)
            _tidy(folder)


@contextmanager
def _opened(kind: str, make: bool = False) -> Iterator[int]:
    """The folder of a kind's entries.  Raises OSError where it is not this user's alone."""
    try:
        place = cache_directory() / kind
    except SexpgpuError as error:
        raise FileNotFoundError(error.message) from None
    if make:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check(os.fstat(folder))
        yield folder
    finally:
        os.close(folder)


def _check(found: os.stat_result) -> None:
    """Nobody else can have written it.  Raises PermissionError."""
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError("others may write here")


def _read(folder: int, name: str) -> bytes:
    """A file's bytes; of anything that is no file none are waited for."""
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(file, "rb") as content:
        found = os.fstat(file)
        _check(found)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            raise OSError("it is no entry")
        return content.read()


def _write(folder: int, name: str, data: bytes) -> None:
    """Whole or not at all, whoever else writes it now."""
    begun = f".{os.getpid()}-{time.time_ns()}"
    file = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        with open(file, "wb") as content:
            content.write(data)
        os.rename(begun, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(begun, dir_fd=folder)
        raise


def _tidy(folder: int) -> None:
    """Removes the oldest entries, and what processes that were killed had begun; nothing else."""
    entries = []
    for name in os.listdir(folder):
        if _NAME.fullmatch(name):
            entries.append((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns, name))
        elif (begun := _BEGUN.fullmatch(name)) and not _runs(int(begun[1])):
            os.unlink(name, dir_fd=folder)
    for _, name in sorted(entries)[:-_ENTRIES]:
        os.unlink(name, dir_fd=folder)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
