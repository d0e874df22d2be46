"""params.safetensors of an export: its weights by path, once, in the order of the model."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.onnx.build import ExternalTensor
from sexpgpu.schemas.exported import WEIGHTS
from sexpgpu.schemas.precision import Precision
from sexpgpu.schemas.safetensors import DTYPES, plan_header
from sexpgpu.schemas.tensor_file import PIECE, Chunks, MappedTensors, write_tensors

#: bf16 is widened, as in a checkpoint: model.json says what it means.
_STORED = {DType.F32: "F32", DType.F64: "F64", DType.BF16: "F32", DType.I32: "I32",
           DType.I64: "I64", DType.BOOL: "BOOL"}  # fmt: skip
_DTYPES = {"F32": DType.F32, "F64": DType.F64, "BF16": DType.BF16, "I32": DType.I32,
           "I64": DType.I64, "BOOL": DType.BOOL}  # fmt: skip

#: What a system says that cannot copy between these files.
_CANNOT_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a checkpoint that holds weights by path, and its SHA-256, which was compared."""

    path: Path
    sha256: str


class WeightFile:
    """The weights of a graph as they are stored; where each will stand is known before.

    With `storage` bf16, f32 and bf16 weights are stored as bf16, rounded to nearest even.
    """

    def __init__(self, graph: Graph, storage: Precision = "f32") -> None:
        self._types = {path: value.type for path, value in graph.weights.items()}
        self._tensors = [
            (path, _stored(type.dtype, storage), [d for d in type.shape if isinstance(d, int)])
            for path, type in self._types.items()
        ]
        self._head, header = plan_header(self._tensors, {})
        self._size = header.size
        self._entries = header.tensors
        self._mapped: MappedTensors | None = None
        self.sha256 = ""

    @property
    def nbytes(self) -> int:
        """Bytes that the weights take."""
        return sum(entry.nbytes for entry in self._entries.values())

    def place(self, path: str) -> ExternalTensor | Array:
        """Where in the file a weight stands; one without elements has no place there."""
        entry = self._entries[path]
        if not entry.nbytes:
            return np.empty(entry.shape, DTYPES[entry.dtype])
        return ExternalTensor(WEIGHTS, entry.offset, entry.nbytes, _DTYPES[entry.dtype])

    def write(
        self, directory: Path, read: Callable[[str], Array], kept: KeptFile | None = None
    ) -> None:
        """Writes the file, a weight at a time: no more than one is in memory.

        `read` gives a weight's values in its dtype, or bf16 as f32, from `kept` where that is
        given; a file that would be the same to the byte is copied as it is.
        """

        def values(path: str) -> Chunks:
            array, dtype = read(path), DTYPES[self._entries[path].dtype]
            return array if array.dtype == dtype else _converted(array, dtype)

        if kept is not None and self._is_same(kept.path):
            _copy(kept.path, directory / WEIGHTS)
            self.sha256 = kept.sha256
        else:
            with (directory / WEIGHTS).open("wb") as file:
                self.sha256 = write_tensors(file, self._tensors, values).sha256
        self._mapped = MappedTensors(directory / WEIGHTS)

    def array(self, path: str) -> Array:
        """A weight's values as they were stored, in its dtype."""
        assert self._mapped is not None, "it is written first"
        return self._mapped.tensor(path).astype(self._types[path].dtype.numpy, copy=False)

    def _is_same(self, path: Path) -> bool:
        """Whether a file has these weights and nothing else, as they would be stored."""
        with path.open("rb") as file:
            head = file.read(len(self._head))
            return head == self._head and os.fstat(file.fileno()).st_size == self._size

    def close(self) -> None:
        if self._mapped is not None:
            self._mapped.close()


def _copy(source: Path, target: Path) -> None:
    """Copies a file; by the system alone where it can, which need not bring the bytes here."""
    if hasattr(os, "copy_file_range"):
        with source.open("rb") as a, target.open("wb") as b:
            left = os.fstat(a.fileno()).st_size
            try:
                while left and (count := os.copy_file_range(a.fileno(), b.fileno(), left)):
                    left -= count
            except OSError as error:
                if error.errno not in _CANNOT_COPY:
                    raise
            if not left:
                return
    shutil.copyfile(source, target)


def _stored(dtype: DType, storage: Precision) -> str:
    if storage == "bf16" and dtype in (DType.F32, DType.BF16):
        return "BF16"
    return _STORED[dtype]


def _converted(array: Array, dtype: np.dtype[Any]) -> Iterator[Array]:
    """The elements in another dtype, a piece at a time."""
    flat = array.reshape(-1)
    step = PIECE // array.itemsize
    for start in range(0, flat.size, step):
        with np.errstate(over="ignore"):
            yield flat[start : start + step].astype(dtype)
