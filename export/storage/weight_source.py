"""A file that `:load` reads weights from: its keys, and its values in a parameter's dtype."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import sha256_of

_NAMES: dict[np.dtype[Any], str] = {
    np.dtype(np.float64): "f64",
    np.dtype(np.float32): "f32",
    np.dtype(np.float16): "f16",
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(ml_dtypes.float8_e4m3fn): "f8-e4m3",
    np.dtype(ml_dtypes.float8_e5m2): "f8-e5m2",
    np.dtype(np.int64): "i64",
    np.dtype(np.int32): "i32",
    np.dtype(np.int16): "i16",
    np.dtype(np.int8): "i8",
    np.dtype(np.uint64): "u64",
    np.dtype(np.uint32): "u32",
    np.dtype(np.uint16): "u16",
    np.dtype(np.uint8): "u8",
    np.dtype(np.bool_): "bool",
}

_EXACT: dict[str, tuple[DType, ...]] = {
    "f64": (DType.F64,),
    "f32": (DType.F32, DType.F64),
    "f16": (DType.F32, DType.F64),
    "bf16": (DType.BF16, DType.F32, DType.F64),
    "f8-e4m3": (DType.BF16, DType.F32, DType.F64),
    "f8-e5m2": (DType.BF16, DType.F32, DType.F64),
    "i64": (DType.I64,),
    "i32": (DType.I32, DType.I64),
    "i16": (DType.I32, DType.I64),
    "i8": (DType.I32, DType.I64),
    "u32": (DType.I64,),
    "u16": (DType.I32, DType.I64),
    "u8": (DType.I32, DType.I64),
    "bool": (DType.BOOL,),
}
"""The dtypes that hold every value of a file's dtype: a file is widened, and never rounded."""


def widened(dtype: str) -> DType | None:
    """The smallest dtype of the language that holds every value of a file's dtype, if one does."""
    return next(iter(_EXACT.get(dtype, ())), None)


#: What Git leaves in place of a large file that has not been fetched.
_POINTER = b"version https://git-lfs.github.com/spec/"

_hashes: dict[tuple[Path, int, int], str] = {}


class WeightSource(ABC):
    """A file of weights.

    Opening one reads what describes it and no more: a tensor's memory is taken when it is read,
    after its size was found to be in the file.  Errors: E-LOAD-001 where the file is not the one
    expected, E-LOAD-002 for a key it has not, E-LOAD-003 where a tensor does not fit a parameter,
    E-LOAD-004 where the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def keys(self) -> list[str]:
        """The names of the file's tensors, in the file's order."""

    @abstractmethod
    def _describe(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """The dtype that `_array` gives, and the shape, of a key that is there."""

    @abstractmethod
    def _array(self, key: str) -> Array:
        """The tensor of a key that is there, in the file's own dtype."""

    def resolve(self, key: str | None) -> str:
        """`key`, or the only key of the file where none is given.  Raises E-LOAD-002."""
        keys = self.keys()
        if key is None and len(keys) == 1:
            return keys[0]
        if key is not None and key in keys:
            return key
        shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        if key is None:
            message, help = "the file holds several tensors and no :key is given", "name one: :key"
            if not keys:
                message, help = "the file holds no tensors", "load another file"
        else:
            message = f"the file has no key `{key}`"
            help = did_you_mean(key, keys) or "look at the file's keys with `sexpgpu inspect`"
        raise SexpgpuError(
            "E-LOAD-002", message, place=str(self.path), expected=shown or None, help=help
        )

    def describe(self, key: str | None) -> tuple[str, tuple[int, ...]]:
        """The dtype ("f32", "bf16", "f16", "u8" …) and the shape.  Raises E-LOAD-002.

        A quantised tensor is described as what it is dequantised to, f32.
        """
        dtype, shape = self._describe(self.resolve(key))
        return _NAMES.get(dtype.newbyteorder("="), str(dtype)), shape

    def check(self, key: str | None, dtype: DType, shape: Sequence[int]) -> None:
        """Whether the tensor fits a parameter, without reading it.

        Raises E-LOAD-002, and E-LOAD-003 where the shape is another or the parameter's dtype
        would round the file's values.
        """
        have, size = self.describe(key)
        if dtype not in _EXACT.get(have, ()):
            wide = widened(have)
            help = "sexpgpu has no dtype for these values; convert the file"
            if wide is not None:
                help = f"declare the parameter `:dtype {wide}` and `cast` where it is used"
        elif size != tuple(shape):
            help = "declare the parameter with the file's shape"
            if size == tuple(shape)[::-1]:
                help += " and `transpose` where it is used"
        else:
            return
        raise SexpgpuError(
            "E-LOAD-003",
            f"the tensor `{self.resolve(key)}` does not fit its parameter",
            place=str(self.path),
            came=f"{have} {list(size)} in the file",
            expected=f"{dtype} {list(shape)}",
            help=help,
        )

    def read(self, key: str | None, dtype: DType, shape: Sequence[int] | None = None) -> Array:
        """The tensor in `dtype`, row-major; it may be a read-only view of the file.

        Where `shape` is given it is checked before any memory is taken.  Raises E-LOAD-002,
        E-LOAD-003, and E-LOAD-004 for content that turns out to be damaged.
        """
        key = self.resolve(key)
        self.check(key, dtype, self._describe(key)[1] if shape is None else shape)
        array = self._array(key)
        if dtype is DType.BOOL and array.size and array.view(np.uint8).max() > 1:
            raise unreadable(self.path, f"tensor `{key}` has booleans that are neither 0 nor 1")
        return array.astype(dtype.numpy, order="C", copy=False)

    def stored(self, key: str) -> Array:
        """The tensor in the file's own dtype, as it is: a read-only view where the file has one.

        Raises E-LOAD-002, and E-LOAD-004 for content that turns out to be damaged.
        """
        return self._array(self.resolve(key))

    def memory(self, key: str) -> int:
        """How many bytes of memory `stored` takes for the tensor; 0 where it gives a view."""
        return 0

    def sha256(self) -> str:
        """The SHA-256 of the file, read in pieces, and once while the file stays the same."""
        try:
            status = self.path.stat()
            identity = (self.path.resolve(), status.st_size, status.st_mtime_ns)
            if identity not in _hashes:
                with open(self.path, "rb") as file:
                    _hashes[identity] = sha256_of(file)
        except OSError as error:
            raise unreadable(self.path, str(error.strerror)) from None
        return _hashes[identity]

    def require(self, sha256: str) -> None:
        """Refuse with E-LOAD-001 a file that has another SHA-256 than the one recorded."""
        if (came := self.sha256()) != sha256:
            raise SexpgpuError(
                "E-LOAD-001",
                f"the :load file `{self.path}` has changed",
                place=str(self.path),
                came=f"SHA-256 {came}",
                expected=f"SHA-256 {sha256}, as when the checkpoint was written",
                help="put the file back that the run read; relative paths start at the current "
                "directory",
            )


def check_file(path: Path) -> None:
    """Raises E-LOAD-004 for what is no file, and for a file that has not been fetched."""
    if not path.is_file():
        raise unreadable(path, "it is not a file", "name one file of weights")
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            why = "it is a pointer of Git LFS, and the file itself is not here"
            raise unreadable(path, why, "`git lfs pull` fetches it")


def unreadable(path: Path, reason: str, help: str | None = None) -> SexpgpuError:
    """E-LOAD-004: what kind of damage or which missing package keeps the file from being read."""
    return SexpgpuError(
        "E-LOAD-004", f"the :load file cannot be read: {reason}", place=str(path), help=help
    )
