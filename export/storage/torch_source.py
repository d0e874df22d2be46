"""`:load` from PyTorch's checkpoints, `.pt`, `.pth`, `.bin` and `.ckpt`, without PyTorch.

A checkpoint is a pickle that describes tensors, and storages that hold their numbers: in a zip
file, or in the format before 1.6 one after the other.  Nothing of the pickle is run, and everything
that it says of sizes is held against the file before memory is taken.
"""

from __future__ import annotations

import math
import mmap
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.export.storage.torch_objects import Foreign, PickleFault, StoredTensor
from sexpgpu.export.storage.torch_pickle import Pickle, read_pickle
from sexpgpu.export.storage.weight_source import WeightSource, unreadable
from sexpgpu.export.storage.zip_member import is_plain, member_start

_DTYPES: Mapping[str, np.dtype[Any]] = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
    "ComplexFloatStorage": np.dtype("<c8"),
    "ComplexDoubleStorage": np.dtype("<c16"),
    "UntypedStorage": np.dtype("u1"),
    # dtypes that have no storage of their own
    "torch.uint16": np.dtype("<u2"),
    "torch.uint32": np.dtype("<u4"),
    "torch.uint64": np.dtype("<u8"),
    "torch.float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "torch.float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
#: Of a module's state what its state_dict names no part of the path.
_TRANSPARENT = ("_parameters", "_buffers", "_modules")

_MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e"
_COUNT = struct.Struct("<Q")
_DEPTH_LIMIT = 64
_VALUES_LIMIT = 1_000_000
#: A tensor may repeat its elements, with strides of 0, up to so many.
_REPEATED_LIMIT = 1 << 20
_CONVERT = (
    "in Python, `torch.save(torch.load(file, weights_only=True), file)` writes it anew, and "
    "safetensors.torch.save_file without a pickle"
)
_ZIP_FAULTS = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, struct.error)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A tensor in the file: where its first element stands, and its strides in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    strides: tuple[int, ...]


class TorchSource(WeightSource):
    """A checkpoint, mapped.  Its keys are the paths to its tensors, joined by dots."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with open(path, "rb") as file:
            size = path.stat().st_size
            if size < len(_MAGIC):
                raise unreadable(path, "it is too short for a PyTorch checkpoint")
            self._bytes = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        try:
            if self._bytes[:2] == b"PK":
                content, places = _read_zip(self._bytes, path)
            elif self._bytes[: len(_MAGIC)] == _MAGIC:
                content, places = _read_sequence(self._bytes)
            else:
                raise PickleFault("it is neither a zip file nor the format before PyTorch 1.6")
            found = list(_tensors(content, "", 0, _Budget(_VALUES_LIMIT)))
            self._tensors = {key: _place(key, tensor, places) for key, tensor in found}
            if len(self._tensors) != len(found):
                raise PickleFault("two of its tensors have the same path")
            if isinstance(content, Foreign) and not found:
                raise PickleFault(f"it is made by `{content.name}`, which is not called")
        except PickleFault as fault:
            raise unreadable(path, str(fault), _CONVERT) from None

    def keys(self) -> list[str]:
        return list(self._tensors)

    def _describe(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        tensor = self._tensors[key]
        return tensor.dtype, tensor.shape

    def _array(self, key: str) -> Array:
        tensor = self._tensors[key]
        if 0 in tensor.shape:
            return np.empty(tensor.shape, tensor.dtype)
        array: Array = np.ndarray(
            tensor.shape, tensor.dtype, self._bytes, tensor.start, tensor.strides
        )
        return array


_Places = Mapping[str, tuple[int, int]]
"""Where a storage begins, and how many bytes it has."""


def _read_zip(data: mmap.mmap, path: Path) -> tuple[object, _Places]:
    """The pickle's content, and the members under `data/`."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            count = len(archive.infolist())
    except _ZIP_FAULTS as error:
        raise PickleFault(f"it is no whole zip file: {error}") from None
    if len(members) != count:
        raise PickleFault("two members of the zip file have the same name")
    pickles = [name for name in members if name.split("/")[-1] == "data.pkl"]
    if len(pickles) != 1:
        raise PickleFault("the zip file holds no single data.pkl")
    root = pickles[0].removesuffix("data.pkl")
    places = {}
    with open(path, "rb") as file:
        for name, info in members.items():
            if name.startswith((root + "data/", pickles[0], root + "byteorder")):
                if not is_plain(info):
                    raise PickleFault(f"member `{name}` is compressed, which torch never does")
                start = member_start(file, info, path)
                if start + info.file_size > len(data):
                    raise PickleFault(f"member `{name}` reaches past the end")
                places[name] = (start, info.file_size)
    if (order := places.get(root + "byteorder")) and data[order[0] : order[0] + 6] != b"little":
        raise PickleFault("its numbers have another byte order")
    start, size = places[pickles[0]]
    content = read_pickle(data, start, start + size).content
    prefix = root + "data/"
    return content, {
        name.removeprefix(prefix): place
        for name, place in places.items()
        if name.startswith(prefix)
    }


def _read_sequence(data: mmap.mmap) -> tuple[object, _Places]:
    """The format before 1.6: a few pickles, and the storages, each behind its count."""
    parts: list[Pickle] = []
    position = 0
    for _ in range(5):
        parts.append(read_pickle(data, position, len(data)))
        position = parts[-1].end
    _, _, system, content, keys = (part.content for part in parts)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise PickleFault("its numbers have another byte order")
    if not isinstance(keys, list):
        raise PickleFault("it has no list of storages")
    kinds = {storage.key: storage.kind for storage in parts[3].storages}
    places = {}
    for key in keys:
        if not isinstance(key, str) or key not in kinds:
            # how long it is is not known, nor where the next one begins
            raise PickleFault("it has a storage that its pickle does not name")
        if position + _COUNT.size > len(data):
            raise PickleFault("it is truncated")
        (count,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        size = count * _dtype(kinds[key]).itemsize
        if size > len(data) - position:
            raise PickleFault("a storage reaches past the end: the file is truncated")
        places[key] = (position, size)
        position += size
    return content, places


@dataclass(slots=True)
class _Budget:
    left: int

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PickleFault(f"it holds more than {_VALUES_LIMIT:,} values")


def _tensors(
    value: object, path: str, depth: int, budget: _Budget
) -> Iterator[tuple[str, StoredTensor]]:
    """Every tensor by its path through dictionaries, lists, and what objects hold."""
    budget.take()
    if isinstance(value, StoredTensor):
        yield path or "tensor", value
        return
    if isinstance(value, Foreign):
        value = value.state
    if isinstance(value, (list, tuple)):
        value = {str(index): item for index, item in enumerate(value)}
    if not isinstance(value, dict):
        return
    if depth == _DEPTH_LIMIT:
        raise PickleFault(f"it is nested {_DEPTH_LIMIT} deep")
    for key, item in value.items():
        inner = path if key in _TRANSPARENT else f"{path}.{key}" if path else key
        yield from _tensors(item, inner, depth + 1, budget)


def _dtype(kind: str) -> np.dtype[Any]:
    if (dtype := _DTYPES.get(kind)) is None:
        raise PickleFault(f"it has numbers of the unknown kind {kind}")
    return dtype


def _place(key: str, tensor: StoredTensor, places: _Places) -> _Placed:
    """Where a tensor stands, once all that it reads is found to be in its storage."""
    storage = tensor.storage
    if storage.key not in places:
        raise PickleFault(f"the storage of `{key}` is missing")
    start, size = places[storage.key]
    claimed = storage.count * _dtype(storage.kind).itemsize
    if claimed > size:
        raise PickleFault(f"the storage of `{key}` has {size:,} bytes, fewer than it claims")
    dtype = _dtype(tensor.dtype or storage.kind)
    held = claimed // dtype.itemsize
    elements = math.prod(tensor.shape)
    reach = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    if elements and tensor.offset + reach >= held:
        raise PickleFault(f"`{key}` reaches past the end of its storage")
    if elements > max(held, _REPEATED_LIMIT):
        raise PickleFault(f"`{key}` repeats its elements, to {elements:,}")
    if math.prod(max(n, 1) for n in tensor.shape) * dtype.itemsize >= 2**63:
        raise PickleFault(f"`{key}` is too large for any machine")
    strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
    return _Placed(dtype, tensor.shape, start + tensor.offset * dtype.itemsize, strides)
