"""Tokens that took long to make, kept on this machine by what they were made from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.export.storage.folders import cache_directory
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.files import DataFile


def kept(
    maker: str,
    file: DataFile,
    dtype: np.dtype[Any],
    make: Callable[[], Iterable[Array]],
    worthwhile: bool = True,
) -> Array:
    """What `make` gives in pieces for a file, end to end; mapped where it is kept.

    It is kept as `<cache>/tokens/<hash>` of the file's bytes and of `maker`, which names whatever
    else the result depends on.  It appears there whole or not at all; where the cache cannot be
    written, or it is not worthwhile, the result is in memory.
    """
    folder = _folder() if worthwhile else None
    if folder is not None:
        digest = hashlib.sha256(f"{maker} {dtype.str} {file.sha256()}".encode())
        path = folder / digest.hexdigest()
        with contextlib.suppress(OSError, ValueError):
            if not path.is_file():
                _write(path, (piece.astype(dtype, copy=False) for piece in make()))
            return np.memmap(path, dtype, "r")
    pieces = [piece.astype(dtype, copy=False) for piece in make()]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype)


def _folder() -> Path | None:
    """None for a user without a home."""
    try:
        return cache_directory() / "tokens"
    except SexpgpuError:
        return None


def _write(path: Path, pieces: Iterable[Array]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            for piece in pieces:
                file.write(np.ascontiguousarray(piece).data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
