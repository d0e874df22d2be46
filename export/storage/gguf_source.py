"""`:load` from GGUF: the header is read here, quantised blocks by the `gguf` package.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.  The package's own reader
is not used, because it trusts the header's counts and takes seconds for a tokenizer's lists.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.export.storage.weight_source import WeightSource, unreadable
from sexpgpu.schemas.errors import SexpgpuError

# ggml's numbers of the types that are plain arrays
_PLAIN: dict[int, np.dtype[Any]] = {
    0: np.dtype("<f4"),
    1: np.dtype("<f2"),
    24: np.dtype("i1"),
    25: np.dtype("<i2"),
    26: np.dtype("<i4"),
    27: np.dtype("<i8"),
    28: np.dtype("<f8"),
    30: np.dtype(ml_dtypes.bfloat16),
}
_FLOAT32 = np.dtype(np.float32)

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
# the header's numbers of kinds of values, and how numbers and booleans are stored
_SCALARS = {
    kind: struct.Struct(f"<{form}")
    for kind, form in zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True)
}
_UINT32, _FLOAT32_VALUE, _STRING, _LIST = 4, 6, 8, 9
# of the metadata: strings of so many bytes and lists of so many numbers are kept, no longer ones
_KEPT_BYTES, _KEPT_NUMBERS = 4_096, 4_096
_STRINGS_LIMIT = 20_000_000
_NAME_LIMIT = 65_536
_RANK_LIMIT = 8
_NESTING_LIMIT = 4
_PIECE = 16 << 20


@dataclass(frozen=True, slots=True)
class _Tensor:
    """`shape` is row-major: the file lists the fastest dimension first."""

    shape: tuple[int, ...]
    kind: int
    offset: int
    nbytes: int


class GgufSource(WeightSource):
    """A GGUF file, mapped; quantised tensors are f32 once they are read.

    `metadata` is what its header says besides: numbers, booleans, short strings and short lists of
    numbers by key.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with open(path, "rb") as file:
            size = path.stat().st_size
            if size < 24:
                raise unreadable(path, "it is too short for a GGUF header")
            self._bytes = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        header = _Header(self._bytes, path)
        self._tensors = header.tensors()
        self.metadata = header.metadata

    def keys(self) -> list[str]:
        return list(self._tensors)

    def _describe(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        tensor = self._tensors[key]
        return _PLAIN.get(tensor.kind, _FLOAT32), tensor.shape

    def memory(self, key: str) -> int:
        tensor = self._tensors[self.resolve(key)]
        return 0 if tensor.kind in _PLAIN else math.prod(tensor.shape) * _FLOAT32.itemsize

    def _array(self, key: str) -> Array:
        tensor = self._tensors[key]
        if tensor.nbytes == 0:
            return np.empty(tensor.shape, _PLAIN.get(tensor.kind, _FLOAT32))
        if (dtype := _PLAIN.get(tensor.kind)) is None:
            return self._dequantised(tensor)
        count = tensor.nbytes // dtype.itemsize
        flat: Array = np.frombuffer(self._bytes, dtype, count, tensor.offset)
        return flat.reshape(tensor.shape)

    def _dequantised(self, tensor: _Tensor) -> Array:
        """The f32 values, a few rows at a time, so that nothing else is as large as the result."""
        import gguf

        kind = gguf.GGMLQuantizationType(tensor.kind)
        rows = math.prod(tensor.shape[:-1])
        blocks = np.frombuffer(self._bytes, np.uint8, tensor.nbytes, tensor.offset)
        blocks = blocks.reshape(rows, -1)
        values = np.empty((rows, tensor.shape[-1]), np.float32)
        step = max(1, _PIECE // values.strides[0])
        try:
            with np.errstate(all="ignore"):
                for start in range(0, rows, step):
                    part = blocks[start : start + step]
                    values[start : start + step] = gguf.quants.dequantize(part, kind)
        except NotImplementedError:
            raise unreadable(self.path, f"the gguf package cannot dequantise {kind.name}") from None
        return values.reshape(tensor.shape)


class _Header:
    """A walk over the header; every length is held against what is left of the file."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._path = path
        self._position = 4
        if data[:4] != b"GGUF":
            raise unreadable(path, "it does not begin with GGUF")
        version = self._number(_U32)
        if version not in (2, 3):
            raise unreadable(path, f"version {version} of GGUF, or its byte order, is not read")
        self._tensor_count = self._count(24)
        self._pair_count = self._count(13)
        self._strings = 0
        self._alignment = 32
        self.metadata: dict[str, Any] = {}

    def tensors(self) -> dict[str, _Tensor]:
        for _ in range(self._pair_count):
            self._pair()
        found: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(self._tensor_count):
            name = self._text()
            if (rank := self._number(_U32)) > _RANK_LIMIT:
                raise unreadable(self._path, f"tensor `{name}` has {rank} dimensions")
            shape = tuple(self._number(_U64) for _ in range(rank))[::-1]
            kind, offset = self._number(_U32), self._number(_U64)
            if name in found:
                raise unreadable(self._path, f"tensor `{name}` stands twice")
            found[name] = (shape, kind, offset)
        start = -(-self._position // self._alignment) * self._alignment
        return {name: self._place(name, start, *found[name]) for name in found}

    def _place(
        self, name: str, start: int, shape: tuple[int, ...], kind: int, offset: int
    ) -> _Tensor:
        if math.prod(max(size, 1) for size in shape) >= 2**60:
            raise unreadable(self._path, f"tensor `{name}` is too large for any machine")
        if (dtype := _PLAIN.get(kind)) is not None:
            block, block_bytes = 1, dtype.itemsize
        else:
            block, block_bytes = _block_size(kind, name, self._path)
        if block > 1 and (not shape or shape[-1] % block):
            raise unreadable(self._path, f"tensor `{name}` has rows of no whole number of blocks")
        nbytes = math.prod(shape) // block * block_bytes
        if start + offset + nbytes > len(self._data):
            raise unreadable(
                self._path, f"tensor `{name}` reaches past the end: the file is truncated"
            )
        return _Tensor(shape, kind, start + offset, nbytes)

    def _pair(self) -> None:
        """One key and its value."""
        key, kind = self._text(), self._number(_U32)
        value = self._value(kind, 0)
        if key in self.metadata:
            raise unreadable(self._path, f"its metadata has `{key}` twice")
        if value is not None:
            self.metadata[key] = value
        if key != "general.alignment":
            return
        if kind != _UINT32:
            raise unreadable(self._path, "general.alignment is no 32-bit number")
        self._alignment = int(value)
        if self._alignment == 0 or self._alignment % 8:
            raise unreadable(self._path, "general.alignment is no multiple of 8")

    def _value(self, kind: int, depth: int) -> Any:
        """A value of the metadata, and None for what is passed over."""
        if kind in _SCALARS:
            return self._scalar(kind)
        if kind == _STRING:
            self._strings += 1
            if self._strings > _STRINGS_LIMIT:
                raise unreadable(self._path, "its metadata holds too many strings")
            length = self._number(_U64)
            start = self._take(length)
            if depth or length > _KEPT_BYTES:
                return None
            return self._data[start : start + length].decode(errors="replace")
        if kind == _LIST and depth < _NESTING_LIMIT:
            element = self._number(_U32)
            if (form := _SCALARS.get(element)) is None:
                for _ in range(self._count(8)):
                    self._value(element, depth + 1)
                return None
            if (length := self._number(_U64)) <= _KEPT_NUMBERS and not depth:
                return [self._scalar(element) for _ in range(length)]
            self._take(length * form.size)
            return None
        raise unreadable(self._path, f"its metadata holds a value of unknown type {kind}")

    def _scalar(self, kind: int) -> int | float | bool:
        """A number or boolean; one of 32 bits as the shortest decimal that stands for it."""
        form = _SCALARS[kind]
        value: int | float | bool = form.unpack_from(self._data, self._take(form.size))[0]
        return float(str(np.float32(value))) if kind == _FLOAT32_VALUE else value

    def _text(self) -> str:
        length = self._number(_U64)
        if length > _NAME_LIMIT:
            raise unreadable(self._path, f"a name in its header has {length:,} bytes")
        start = self._take(length)
        try:
            return self._data[start : start + length].decode()
        except UnicodeDecodeError:
            raise unreadable(self._path, "a name in its header is not UTF-8") from None

    def _count(self, least: int) -> int:
        """A number of things that take at least `least` bytes each."""
        if (count := self._number(_U64)) > (len(self._data) - self._position) // least:
            raise unreadable(self._path, f"its header claims {count:,} entries, more than fit")
        return count

    def _number(self, form: struct.Struct) -> int:
        (value,) = form.unpack_from(self._data, self._take(form.size))
        return int(value)

    def _take(self, length: int) -> int:
        """Move past `length` bytes; gives where they start."""
        start = self._position
        if length > len(self._data) - start:
            raise unreadable(self._path, "its header is truncated")
        self._position = start + length
        return start


def _block_size(kind: int, name: str, path: Path) -> tuple[int, int]:
    """Elements and bytes of a block of a quantised type."""
    try:
        import gguf
    except ImportError:
        raise SexpgpuError(
            "E-LOAD-004",
            f"the tensor `{name}` is quantised, and the gguf package is not installed",
            place=str(path),
            help="pip install 'sexpgpu[gguf]'",
        ) from None
    try:
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise unreadable(path, f"tensor `{name}` has the unknown type {kind}") from None
    return int(block), int(size)
