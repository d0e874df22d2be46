"""The safetensors format: its dtypes, its header checked in full, and the header's bytes.

A file is the header's length (u64, little-endian), the header (JSON: name → dtype, shape and
`data_offsets` into what follows), then the tensors' elements, row-major and little-endian.  Our
own reader and writer, because ONNX external data needs the offsets and because a model larger than
memory must be written.  Format: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np

from sexpgpu.schemas.document import decode, repeated_name
from sexpgpu.schemas.errors import SexpgpuError

_DTYPES: dict[str, np.dtype[Any] | None] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": None,
    "F8_E4M3": None,
    "F8_E5M2": None,
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


class _Dtypes(Mapping[str, np.dtype[Any]]):
    """NumPy's dtype for each name; the module of those that NumPy has not is loaded for them."""

    def __getitem__(self, name: str) -> np.dtype[Any]:
        found = _DTYPES[name]
        return _beyond_numpy(name) if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter(_DTYPES)

    def __len__(self) -> int:
        return len(_DTYPES)


@cache
def _beyond_numpy(name: str) -> np.dtype[Any]:
    import ml_dtypes

    scalars = {
        "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E5M2": ml_dtypes.float8_e5m2,
    }
    found: np.dtype[Any] = np.dtype(scalars[name])
    return found


DTYPES = _Dtypes()
"""The dtypes that are read and written, by their names in the header."""

HEADER_LIMIT = 100_000_000
"""Bytes that a header may have; the limit of the safetensors library itself."""

_LENGTH = struct.Struct("<Q")
_RANK_LIMIT = 64  # NumPy's
_METADATA = "__metadata__"

_Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """A tensor as the header writes it."""

    dtype: str
    shape: Annotated[list[_Size], msgspec.Meta(max_length=_RANK_LIMIT)]
    data_offsets: tuple[_Size, _Size]


class TensorEntry(msgspec.Struct, frozen=True):
    """Where a tensor stands in its file: `offset` counts bytes from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class TensorsHeader(msgspec.Struct, frozen=True):
    """A checked header: the tensors in the order of their bytes, and the file's own metadata."""

    tensors: dict[str, TensorEntry]
    metadata: dict[str, str]
    data_offset: int
    size: int


def read_header(path: str | Path) -> TensorsHeader:
    """The header of the file at `path`.  Raises E-TENSORS-001 and E-FILE-001."""
    try:
        with open(path, "rb") as file:
            return read_header_from(file, os.fstat(file.fileno()).st_size, str(path))
    except OSError as error:
        raise SexpgpuError(
            "E-FILE-001", f"cannot read the file: {error.strerror or error}", place=str(path)
        ) from None


def read_header_from(file: BinaryIO, size: int, place: str) -> TensorsHeader:
    """The header of an open file of `size` bytes, whose position is its start.

    Nothing is allocated that the file does not itself hold.  Raises E-TENSORS-001 where the header
    does not describe the bytes that follow it: each of them belongs to exactly one tensor.
    """
    if size < _LENGTH.size:
        raise _damaged(place, f"the file has {size} bytes and no header")
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    if length > HEADER_LIMIT:
        raise _damaged(place, f"the header claims {length:,} bytes, more than {HEADER_LIMIT:,}")
    if length > size - _LENGTH.size:
        raise _damaged(
            place, f"the header claims {length:,} bytes; the file has {size - _LENGTH.size:,}"
        )
    text = file.read(length)
    if not text.startswith(b"{"):
        raise _damaged(place, "the header is not a JSON object")
    records, metadata = _decode(text, place)
    start = _LENGTH.size + length
    entries = [_entry(name, record, start, place) for name, record in records.items()]
    entries.sort(key=lambda entry: (entry.offset, entry.nbytes))
    _check_cover(entries, start, size, place)
    return TensorsHeader({entry.name: entry for entry in entries}, metadata, start, size)


def plan_header(
    tensors: Iterable[tuple[str, str, Sequence[int]]], metadata: Mapping[str, str]
) -> tuple[bytes, TensorsHeader]:
    """The bytes before the data, and where each (name, dtype, shape) will stand.

    Larger elements come first and the data starts at a multiple of 8, so that every tensor is
    aligned to its elements; otherwise the order is the one given.  The same input gives the same
    bytes.  Raises ValueError for a name that comes twice or a dtype that DTYPES has not.
    """
    planned = sorted(tensors, key=lambda tensor: -_dtype(tensor[1]).itemsize)
    content: dict[str, Any] = {_METADATA: dict(sorted(metadata.items()))} if metadata else {}
    position = 0
    spans: list[tuple[str, str, tuple[int, ...], int, int]] = []
    for name, dtype, shape in planned:
        if name in content or name == _METADATA:
            raise ValueError(f"tensor name {name!r} cannot be used (again)")
        nbytes = math.prod(shape) * _dtype(dtype).itemsize
        content[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [position, position + nbytes],
        }
        spans.append((name, dtype, tuple(shape), position, nbytes))
        position += nbytes
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_LIMIT:
        raise ValueError(f"the header would take {len(text):,} bytes, more than {HEADER_LIMIT:,}")
    start = _LENGTH.size + len(text)
    entries = {
        name: TensorEntry(name, dtype, shape, start + offset, nbytes)
        for name, dtype, shape, offset, nbytes in spans
    }
    header = TensorsHeader(entries, dict(metadata), start, start + position)
    return _LENGTH.pack(len(text)) + text, header


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The header's name for a NumPy dtype.  Raises ValueError where it has none."""
    for name, known in DTYPES.items():
        if known == dtype:
            return name
    raise ValueError(f"safetensors has no name for dtype {dtype}")


def _decode(text: bytes, place: str) -> tuple[dict[str, _Record], dict[str, str]]:
    try:
        raw = decode(text, dict[str, msgspec.Raw], place)
        metadata = decode(raw.pop(_METADATA, msgspec.Raw(b"{}")), dict[str, str], place)
        records = {}
        for name, value in raw.items():
            records[name] = decode(value, _Record, f"{place} {json.dumps(name)}")
        repeated = repeated_name(text)
    except SexpgpuError as error:  # the JSON reader's own words, under the code of this format
        raise SexpgpuError(
            "E-TENSORS-001",
            f"the header is malformed: {error.message}",
            place=error.place,
            came=error.came,
            expected=error.expected,
        ) from None
    except RecursionError:
        raise _damaged(place, "the header is nested too deep") from None
    if repeated is not None:
        raise _damaged(place, "the header has a name twice", repeated)
    return records, metadata


def _entry(name: str, record: _Record, start: int, place: str) -> TensorEntry:
    """Check what one record says by itself."""
    if (dtype := DTYPES.get(record.dtype)) is None:
        raise _damaged(
            place, f"the dtype {json.dumps(record.dtype)} is unknown", name, ", ".join(DTYPES)
        )
    if math.prod(max(size, 1) for size in record.shape) * dtype.itemsize >= 2**63:
        raise _damaged(place, f"the shape {record.shape} is too large for any machine", name)
    begin, end = record.data_offsets
    nbytes = math.prod(record.shape) * dtype.itemsize
    if end - begin != nbytes:
        raise _damaged(
            place,
            f"data_offsets span {end - begin:,} bytes",
            name,
            f"{nbytes:,} bytes for {record.dtype} {record.shape}",
        )
    return TensorEntry(name, record.dtype, tuple(record.shape), start + begin, nbytes)


def _check_cover(entries: list[TensorEntry], start: int, size: int, place: str) -> None:
    """Entries sorted by offset must follow one another from `start` to the file's end."""
    position = start
    for entry in entries:
        if entry.offset + entry.nbytes > size:
            raise _damaged(
                place,
                "the tensor reaches past the end of the file: the file is truncated",
                entry.name,
                f"a file of at least {entry.offset + entry.nbytes:,} bytes; this has {size:,}",
            )
        if entry.offset < position:
            raise _damaged(place, "the tensor overlaps the one before it", entry.name)
        if entry.offset > position:
            gap = entry.offset - position
            raise _damaged(place, f"{gap:,} bytes before the tensor belong to none", entry.name)
        position += entry.nbytes
    if position != size:
        raise _damaged(place, f"{size - position:,} bytes at the end belong to no tensor")


def _dtype(name: str) -> np.dtype[Any]:
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is not one of {', '.join(DTYPES)}")
    return DTYPES[name]


def _damaged(
    place: str, message: str, key: str | None = None, expected: str | None = None
) -> SexpgpuError:
    return SexpgpuError(
        "E-TENSORS-001",
        message,
        place=place if key is None else f"{place} {json.dumps(key)}",
        expected=expected,
        help="write the file again or fetch it again",
    )
