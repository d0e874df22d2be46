"""What a server found out before, kept in the user's cache, so that the next start is quicker.

An entry holds everything that it was made from, to be compared byte by byte: it is right, or it is
made again.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress

import msgspec

from sexpgpu.export.storage.folders import cache_directory

#: Entries of a kind that are kept; the oldest go first.
_ENTRIES = 64
#: Larger ones are few, and of models that take long to load anyway.
_LARGEST = 64 << 20


class _Entry(msgspec.Struct):
    made_from: bytes
    made: bytes


class Kept:
    """An entry of some kind, by what it is made from; there may be none yet."""

    def __init__(self, kind: str, made_from: bytes) -> None:
        self._made_from = made_from
        self._path = cache_directory() / kind / f"{zlib.crc32(made_from):08x}"

    def read(self) -> bytes | None:
        """What was made; None where there is no entry."""
        try:
            if self._path.stat().st_size > _LARGEST:
                return None
            entry = msgspec.msgpack.decode(self._path.read_bytes(), type=_Entry)
        except (OSError, msgspec.DecodeError):
            return None
        return entry.made if entry.made_from == self._made_from else None

    def write(self, made: bytes) -> None:
        """Makes an entry, in place of the oldest; where it cannot be written there is none."""
        data = msgspec.msgpack.encode(_Entry(self._made_from, made))
        if len(data) > _LARGEST:
            return
        folder = self._path.parent
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = folder / f".{os.getpid()}"
            beside.write_bytes(data)
            beside.replace(self._path)
            entries = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
            for path in entries[:-_ENTRIES]:
                path.unlink()
