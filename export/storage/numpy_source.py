"""`:load` from NumPy's `.npy` and `.npz`, checked before memory is taken."""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.export.storage.weight_source import WeightSource, unreadable
from sexpgpu.export.storage.zip_member import is_plain, member_start
from sexpgpu.schemas.tensor_file import PIECE

_DEFLATE_RATIO = 1032
"""What deflate can make of one byte at most: a member that claims more is a lie."""

_MAPPED_FROM = 64 << 20

_HEADER_FAULTS = (
    ValueError,
    SyntaxError,
    TypeError,
    OverflowError,
    MemoryError,
    RecursionError,
    EOFError,
    struct.error,
    tokenize.TokenError,
)
_ZIP_FAULTS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)


@dataclass(frozen=True, slots=True)
class _ArrayHeader:
    """What stands before an array's elements; `start` is how many bytes that takes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def shaped(self, flat: Array) -> Array:
        return flat.reshape(self.shape, order="F" if self.fortran else "C")


class NpySource(WeightSource):
    """A `.npy` file, mapped.  Its one tensor has the key `array`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with open(path, "rb") as file:
            self._header = _read_header(file, path.stat().st_size, path)

    def keys(self) -> list[str]:
        return ["array"]

    def _describe(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        return self._header.dtype, self._header.shape

    def _array(self, key: str) -> Array:
        header = self._header
        if header.nbytes == 0:
            return np.empty(header.shape, header.dtype)
        count = math.prod(header.shape)
        try:
            flat: Array = np.memmap(self.path, header.dtype, "r", header.start, (count,))
        except (OSError, ValueError) as error:
            raise unreadable(self.path, str(error)) from None
        return header.shaped(flat)


class NpzSource(WeightSource):
    """A `.npz` file: a zip of arrays, keyed by their names without `.npy`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            with zipfile.ZipFile(path) as archive:
                members = [info for info in archive.infolist() if not info.filename.endswith("/")]
        except (*_ZIP_FAULTS, ValueError, struct.error) as error:
            raise unreadable(path, f"it is not a zip file: {error}") from None
        self._members = {info.filename.removesuffix(".npy"): info for info in members}
        if len(self._members) != len(members):
            raise unreadable(path, "two of its members have the same name")
        self._headers: dict[str, _ArrayHeader] = {}

    def keys(self) -> list[str]:
        return list(self._members)

    def _describe(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        header = self._header(key)
        return header.dtype, header.shape

    def _array(self, key: str) -> Array:
        header = self._header(key)
        content = np.empty(header.nbytes, np.uint8)
        filled = 0
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self._members[key]) as file:
                file.read(header.start)
                # up to the member's end, where its checksum is compared
                while piece := file.read(PIECE):
                    content.data[filled : filled + len(piece)] = piece
                    filled += len(piece)
        except (*_ZIP_FAULTS, OSError, ValueError) as error:
            raise unreadable(self.path, f"member `{key}` is damaged: {error}") from None
        if filled != len(content):
            raise unreadable(self.path, f"member `{key}` is truncated")
        return header.shaped(content.view(header.dtype))

    def stored(self, key: str) -> Array:
        """As in every source; a large member that is not compressed is mapped, which leaves out
        the comparison of its checksum."""
        key = self.resolve(key)
        if not self._is_mapped(key):
            return self._array(key)
        header, info = self._header(key), self._members[key]
        with open(self.path, "rb") as file:
            start = member_start(file, info, self.path) + header.start
        try:
            count = math.prod(header.shape)
            flat: Array = np.memmap(self.path, header.dtype, "r", start, (count,))
        except (OSError, ValueError) as error:
            raise unreadable(self.path, f"member `{key}` is truncated: {error}") from None
        return header.shaped(flat)

    def memory(self, key: str) -> int:
        """As in every source."""
        key = self.resolve(key)
        return 0 if self._is_mapped(key) else self._header(key).nbytes

    def _is_mapped(self, key: str) -> bool:
        info = self._members[key]
        return is_plain(info) and self._header(key).nbytes >= _MAPPED_FROM

    def _header(self, key: str) -> _ArrayHeader:
        """The member's header, read once and held against what the zip says of its size."""
        if key in self._headers:
            return self._headers[key]
        info = self._members[key]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise unreadable(self.path, f"member `{key}` is compressed by an unknown method")
        ratio = 1 if info.compress_type == zipfile.ZIP_STORED else _DEFLATE_RATIO
        if info.file_size > info.compress_size * ratio or (
            info.compress_size > self.path.stat().st_size
        ):
            raise unreadable(
                self.path, f"member `{key}` claims {info.file_size:,} bytes, more than it can hold"
            )
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(info) as file:
                header = _read_header(file, info.file_size, self.path)
        except (*_ZIP_FAULTS, OSError) as error:
            raise unreadable(self.path, f"member `{key}` is damaged: {error}") from None
        self._headers[key] = header
        return header


def _read_header(file: IO[bytes], size: int, path: Path) -> _ArrayHeader:
    """The header of an array whose file or member has `size` bytes."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise unreadable(path, f"version {version} of the npy format is not read")
    except _HEADER_FAULTS as error:
        raise unreadable(path, f"its array header is malformed: {_first_line(error)}") from None
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        dtype = np.dtype(ml_dtypes.bfloat16)  # which is how NumPy writes it down
    elif dtype.hasobject or dtype.kind not in "fiub":
        raise unreadable(
            path,
            f"it holds {_first_line(str(dtype))}, which are no numbers",
            "pickled objects are never loaded; save plain arrays",
        )
    header = _ArrayHeader(dtype, shape, fortran, file.tell())
    if min(shape, default=0) < 0 or header.start + header.nbytes != size:
        raise unreadable(
            path,
            f"its header claims {dtype} {_first_line(str(list(shape)))}, "
            f"{size - header.start:,} bytes follow",
        )
    if math.prod(max(length, 1) for length in shape) * dtype.itemsize >= 2**63:
        raise unreadable(path, "its shape is too large for any machine")
    return header


def _first_line(reason: object) -> str:
    return str(reason).partition("\n")[0][:100]
