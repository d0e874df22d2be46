"""`:load` from HDF5, `.h5` and `.hdf5`, and from Keras's archives, `.keras`, which hold one.

The `h5py` package reads what describes the datasets.  Their numbers are read here, from the file as
it is mapped, so that no filter runs but deflate, and none makes more than the dataset has.
"""

from __future__ import annotations

import io
import math
import mmap
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.export.storage.weight_source import WeightSource, unreadable
from sexpgpu.export.storage.zip_member import is_plain, member_start
from sexpgpu.schemas.errors import SexpgpuError

_DEFLATE, _SHUFFLE, _CHECKSUM = 1, 2, 3
_CHECKSUM_BYTES = 4
_DEFLATE_RATIO = 1032
"""What deflate can make of one byte at most."""

_KERAS_WEIGHTS = "model.weights.h5"
_DEPTH_LIMIT = 64
_ITEMS_LIMIT = 30_000
_FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError)
_REWRITE = "write the numbers anew with h5py, in datasets of their own without options"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A part of a dataset in the file; bit i of `skipped` says that filter i was left out."""

    at: tuple[int, ...]
    start: int
    nbytes: int
    skipped: int


@dataclass(frozen=True, slots=True)
class _Dataset:
    """Numbers that stand in the file in one piece (`start`), as `content`, or in chunks."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int = 0
    content: bytes | None = None
    chunk: tuple[int, ...] = ()
    chunks: tuple[_Chunk, ...] = ()
    filters: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Hdf5Source(WeightSource):
    """An HDF5 file, mapped.  Its keys are the paths of its datasets of numbers, joined by "/"."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        h5py = _package(path)
        with open(path, "rb") as file:
            size = path.stat().st_size
            if size < 8:
                raise unreadable(path, "it is too short for an HDF5 file")
            whole = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
            start = 0
            if path.suffix.lower() == ".keras":
                start, size = _weights_of(file, path, size)
        self._bytes = whole[start : start + size]
        try:
            with h5py.File(_Part(self._bytes), "r") as content:
                if content.userblock_size:
                    raise unreadable(path, "it has a user block before its content", _REWRITE)
                reader = _Reader(h5py, path, size)
                self._datasets = dict(reader.datasets(content))
        except _FAULTS as error:
            reason = str(error).partition("\n")[0][:200]
            raise unreadable(path, f"it is damaged, or no HDF5 file: {reason}") from None

    def keys(self) -> list[str]:
        return list(self._datasets)

    def _describe(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        dataset = self._datasets[key]
        return dataset.dtype, dataset.shape

    def memory(self, key: str) -> int:
        """As in every source."""
        dataset = self._datasets[self.resolve(key)]
        return dataset.nbytes if dataset.chunks else 0

    def _array(self, key: str) -> Array:
        dataset = self._datasets[key]
        if dataset.nbytes == 0:
            return np.empty(dataset.shape, dataset.dtype)
        if dataset.chunks:
            return self._joined(key, dataset)
        buffer = self._bytes if dataset.content is None else dataset.content
        count = math.prod(dataset.shape)
        flat: Array = np.frombuffer(buffer, dataset.dtype, count, dataset.start)
        return flat.reshape(dataset.shape)

    def _joined(self, key: str, dataset: _Dataset) -> Array:
        """The dataset out of its chunks, one at a time."""
        array = np.empty(dataset.shape, dataset.dtype)
        for chunk in dataset.chunks:
            raw = bytes(self._bytes[chunk.start : chunk.start + chunk.nbytes])
            values = self._unfiltered(key, raw, chunk, dataset)
            # a chunk at the end reaches past the dataset
            ends = zip(chunk.at, dataset.chunk, dataset.shape, strict=True)
            inside = tuple(slice(at, min(at + length, size)) for at, length, size in ends)
            array[inside] = values[tuple(slice(part.stop - part.start) for part in inside)]
        return array

    def _unfiltered(self, key: str, raw: bytes, chunk: _Chunk, dataset: _Dataset) -> Array:
        size = dataset.dtype.itemsize
        wanted = math.prod(dataset.chunk) * size
        try:
            for index, kind in reversed(list(enumerate(dataset.filters))):
                if chunk.skipped >> index & 1:
                    continue
                if kind == _CHECKSUM:
                    raw = raw[:-_CHECKSUM_BYTES]
                elif kind == _DEFLATE:
                    raw = zlib.decompressobj().decompress(raw, wanted + _CHECKSUM_BYTES)
                elif kind == _SHUFFLE and len(raw) % size == 0:
                    raw = np.frombuffer(raw, np.uint8).reshape(size, -1).T.tobytes()
        except zlib.error as error:
            raise unreadable(self.path, f"dataset `{key}` is damaged: {error}") from None
        if len(raw) != wanted:
            raise unreadable(self.path, f"dataset `{key}` is damaged: a chunk has another size")
        return np.frombuffer(raw, dataset.dtype).reshape(dataset.chunk)


class _Part(io.RawIOBase):
    """A part of a file as a file, for h5py to read."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._content)}
        self._position = max(0, origin[whence] + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        found = self._content[self._position : self._position + len(buffer)]
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)


def _weights_of(file: BinaryIO, path: Path, size: int) -> tuple[int, int]:
    """Where the HDF5 file in one of Keras's archives begins, and how long it is."""
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(_KERAS_WEIGHTS)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, ValueError, struct.error) as error:
        reason = f"it is no zip file that holds {_KERAS_WEIGHTS}: {error}"
        raise unreadable(path, reason) from None
    if not is_plain(info):
        raise unreadable(path, f"{_KERAS_WEIGHTS} in it is compressed", "unzip it, and load that")
    start = member_start(file, info, path)
    if start + info.file_size > size:
        raise unreadable(path, f"{_KERAS_WEIGHTS} reaches past its end")
    return start, info.file_size


class _Reader:
    """A walk through the groups, of which only links within the file are followed."""

    def __init__(self, h5py: Any, path: Path, size: int) -> None:
        self._h5py = h5py
        self._path = path
        self._size = size
        self._left = _ITEMS_LIMIT

    def datasets(self, group: Any, prefix: str = "", depth: int = 0) -> Iterator[Any]:
        """Every dataset of numbers by its path; text and records are passed over."""
        if depth == _DEPTH_LIMIT:
            raise unreadable(self._path, f"its groups are nested {_DEPTH_LIMIT} deep")
        for name in group:
            self._left -= 1
            if self._left < 0:
                raise unreadable(self._path, f"it holds more than {_ITEMS_LIMIT:,} things")
            if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
                continue
            item, key = group[name], prefix + name
            if isinstance(item, self._h5py.Group):
                yield from self.datasets(item, key + "/", depth + 1)
            elif isinstance(item, self._h5py.Dataset) and self._is_numbers(item):
                yield key, self._dataset(key, item)

    def _is_numbers(self, item: Any) -> bool:
        """Whether it has a shape and numbers that stand in the file as NumPy has them."""
        if item.shape is None or item.dtype.kind not in "fiub" or item.dtype.hasobject:
            return False
        plain = self._h5py.h5t.py_create(item.dtype, logical=True)
        return bool(item.id.get_type().equal(plain))

    def _dataset(self, key: str, item: Any) -> _Dataset:
        """Where its numbers stand; nothing that it claims is more than the file can hold."""
        layout, plist = self._h5py.h5d, item.id.get_create_plist()
        if item.is_virtual or item.external:
            raise self._refused(key, "is kept in another file")
        dtype, shape = item.dtype, tuple(int(n) for n in item.shape)
        plain = _Dataset(dtype, shape)
        if math.prod(max(n, 1) for n in shape) * dtype.itemsize >= 2**63:
            raise self._refused(key, "is too large for any machine")
        if plain.nbytes == 0:
            return plain
        if plist.get_layout() == layout.CHUNKED:
            return self._chunked(key, item, plain)
        if item.id.get_storage_size() != plain.nbytes:
            raise self._refused(key, "has fewer numbers than it claims, or was never written")
        if plist.get_layout() == layout.COMPACT:
            return _Dataset(dtype, shape, content=item[...].tobytes())
        start = item.id.get_offset()
        if start is None or start + plain.nbytes > self._size:
            raise self._refused(key, "reaches past the end: the file is truncated")
        return _Dataset(dtype, shape, start=int(start))

    def _chunked(self, key: str, item: Any, plain: _Dataset) -> _Dataset:
        plist = item.id.get_create_plist()
        filters = tuple(plist.get_filter(i)[0] for i in range(plist.get_nfilters()))
        if not {_DEFLATE, _SHUFFLE, _CHECKSUM}.issuperset(filters):
            raise self._refused(key, "is compressed by an unknown method")
        chunk = tuple(int(n) for n in item.chunks)
        found: list[_Chunk] = []

        def add(info: Any) -> None:
            at = tuple(int(n) for n in info.chunk_offset)
            found.append(_Chunk(at, int(info.byte_offset), int(info.size), int(info.filter_mask)))

        item.id.chunk_iter(add)
        counts = [-(-size // length) for size, length in zip(plain.shape, chunk, strict=True)]
        if len(found) != math.prod(counts):
            raise self._refused(key, "has parts that were never written")
        steps = product(*(range(0, n, c) for n, c in zip(plain.shape, chunk, strict=True)))
        if sorted(part.at for part in found) != list(steps):
            raise self._refused(key, "has parts that overlap")
        ratio = _DEFLATE_RATIO ** filters.count(_DEFLATE)
        wanted = math.prod(chunk) * plain.dtype.itemsize
        for part in found:
            if part.start + part.nbytes > self._size:
                raise self._refused(key, "reaches past the end: the file is truncated")
            if wanted > part.nbytes * ratio:
                raise self._refused(key, f"claims {wanted:,} bytes of {part.nbytes:,}")
        return _Dataset(plain.dtype, plain.shape, chunk=chunk, chunks=tuple(found), filters=filters)

    def _refused(self, key: str, reason: str) -> SexpgpuError:
        return unreadable(self._path, f"dataset `{key}` {reason}", _REWRITE)


def _package(path: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise SexpgpuError(
            "E-LOAD-004",
            "the :load file is HDF5, and the h5py package is not installed",
            place=str(path),
            help="pip install 'sexpgpu[hdf5]'",
        ) from None
    return h5py
