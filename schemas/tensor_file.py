"""Safetensors files as such: tensors mapped from one lazily, and streamed into one."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.safetensors import (
    DTYPES,
    TensorEntry,
    TensorsHeader,
    plan_header,
    read_header_from,
)

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Chunks: TypeAlias = Array | Iterable[Array]
"""The elements of a tensor in row-major order: one array, or pieces of any shape in turn."""


class Readable(Protocol):
    """What can be read in pieces to its end."""

    def read(self, size: int, /) -> bytes: ...


class Writable(Protocol):
    """What can be written to in pieces."""

    def write(self, data: bytes | memoryview, /) -> object: ...


PIECE = 16 << 20
"""Bytes that are written, read or hashed at a time."""

_WORTH_A_THREAD = 1 << 18


class MappedTensors:
    """The tensors of a safetensors file, mapped: a tensor's pages are read when it is used.

    `header` says where each stands, `status` which file it was.  Arrays that `tensor` gave keep the
    mapping alive, and when one is gone, so are its pages from this process's memory.
    Raises E-TENSORS-001 for a damaged file and E-FILE-001 for one that cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with open(path, "rb") as file:
                self.status = os.fstat(file.fileno())
                size = self.status.st_size
                self.header = read_header_from(file, size, str(path))
                self._bytes = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise SexpgpuError(
                "E-FILE-001", f"cannot read the file: {reason}", place=str(path)
            ) from None

    def keys(self) -> list[str]:
        """The tensors' names, in the order of their bytes."""
        return list(self.header.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.header.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.header.tensors)

    def __len__(self) -> int:
        return len(self.header.tensors)

    def entry(self, name: str) -> TensorEntry:
        """Where the tensor stands.  Raises KeyError for a name that is not there."""
        return self.header.tensors[name]

    def tensor(self, name: str) -> Array:
        """The tensor as a read-only view of the file, of its shape and of DTYPES[its dtype].

        Raises KeyError for a name that is not there, and E-TENSORS-001 for a BOOL that is neither
        0 nor 1, of which NumPy would make something else at every use.
        """
        entry = self.header.tensors[name]
        dtype = DTYPES[entry.dtype]
        if entry.nbytes == 0:
            return np.empty(entry.shape, dtype)
        count = entry.nbytes // dtype.itemsize
        if entry.dtype == "BOOL":
            self._check_booleans(entry)
        flat: Array = np.frombuffer(self._bytes, dtype, count, entry.offset)
        weakref.finalize(flat, _let_go, self._bytes, entry.offset, entry.nbytes).atexit = False
        return flat.reshape(entry.shape)

    def close(self) -> None:
        """Unmap the file, unless an array of it is still in use: then it goes with the last."""
        try:
            self._bytes.close()
        except BufferError:
            return

    def __enter__(self) -> MappedTensors:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_booleans(self, entry: TensorEntry) -> None:
        values = np.frombuffer(self._bytes, np.uint8, entry.nbytes, entry.offset)
        if (largest := values.max()) > 1:
            raise SexpgpuError(
                "E-TENSORS-001",
                "a BOOL element is neither 0 nor 1",
                place=f'{self.path} "{entry.name}"',
                came=str(largest),
            )


def _let_go(mapped: mmap.mmap, offset: int, nbytes: int) -> None:
    """Tells the system that these bytes are not needed for now; using them reads them again."""
    start = offset - offset % mmap.PAGESIZE
    if hasattr(mmap, "MADV_DONTNEED") and not mapped.closed:
        mapped.madvise(mmap.MADV_DONTNEED, start, offset + nbytes - start)


class WrittenTensors(msgspec.Struct, frozen=True):
    """What `write_tensors` wrote: the header with every offset, and the file's SHA-256."""

    header: TensorsHeader
    sha256: str


def write_tensors(
    file: Writable,
    tensors: Iterable[tuple[str, str, Sequence[int]]],
    read: Callable[[str], Chunks],
    metadata: Mapping[str, str] | None = None,
) -> WrittenTensors:
    """Write a safetensors file, one tensor after another.

    `tensors` gives (name, dtype as in DTYPES, shape); `read(name)` is asked for each tensor's
    elements when its turn comes, so that no more than one array or piece is in memory.  Raises
    ValueError where the elements are not of the dtype and number announced.
    """
    # Imported where something is hashed: it loads OpenSSL, which a server needs for nothing else.
    import hashlib
    from concurrent.futures import ThreadPoolExecutor

    head, header = plan_header(tensors, metadata or {})
    digest = hashlib.sha256(head)
    file.write(head)
    with ThreadPoolExecutor(1) as hasher:
        for entry in header.tensors.values():
            content = read(entry.name)
            written = 0
            for array in [content] if isinstance(content, np.ndarray) else content:
                if array.dtype != DTYPES[entry.dtype]:
                    raise ValueError(f"{entry.name}: {array.dtype} came for {entry.dtype}")
                for piece in _pieces(array):
                    if (written := written + len(piece)) > entry.nbytes:
                        break
                    if len(piece) < _WORTH_A_THREAD:
                        digest.update(piece)
                        file.write(piece)
                        continue
                    # Hashing takes as long as writing, and neither needs Python.
                    hashed = hasher.submit(digest.update, piece)
                    file.write(piece)
                    hashed.result()
            if written != entry.nbytes:
                raise ValueError(f"{entry.name}: {written} bytes or more came for {entry.nbytes}")
    return WrittenTensors(header, digest.hexdigest())


def sha256_of(file: Readable, advance: Callable[[int], object] | None = None) -> str:
    """The SHA-256 of what is left of `file`; `advance` is told of the bytes as they go by."""
    import hashlib

    digest = hashlib.sha256()
    while piece := file.read(PIECE):
        digest.update(piece)
        if advance is not None:
            advance(len(piece))
    return digest.hexdigest()


def _pieces(array: Array) -> Iterator[memoryview]:
    """The array's bytes in row-major order, PIECE at a time."""
    if array.nbytes == 0:
        return
    if not array.flags.c_contiguous and array.ndim > 1 and array.nbytes > PIECE:
        for part in array:  # copied row by row, not as a whole
            yield from _pieces(part)
        return
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    for start in range(0, len(flat), PIECE):
        yield flat[start : start + PIECE]
