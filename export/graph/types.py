"""What a tensor is made of: its dtype, and a shape whose only unknown is the batch."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec
import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class DType(enum.StrEnum):
    """The six dtypes of the language."""

    F32 = "f32"
    F64 = "f64"
    BF16 = "bf16"
    I32 = "i32"
    I64 = "i64"
    BOOL = "bool"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bf16 is that of ml_dtypes."""
        return _bfloat16() if self is DType.BF16 else _NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes an element takes."""
        return 2 if self is DType.BF16 else _NUMPY[self].itemsize

    @property
    def is_float(self) -> bool:
        return self in FLOATS

    @property
    def is_integer(self) -> bool:
        return self in INTEGERS

    @classmethod
    def of(cls, array: Array) -> DType:
        """The dtype of a NumPy array that has one of the six."""
        found = _FROM_NUMPY.get(array.dtype)
        if found is None and array.dtype.name == "bfloat16":
            return DType.BF16
        return found or _FROM_NUMPY[array.dtype]

    def describe_value(self) -> str:
        return "a dtype"

    def show_value(self) -> str:
        return self.value


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.BOOL: np.dtype(np.bool_),
}
_FROM_NUMPY = {value: key for key, value in _NUMPY.items()}


@cache
def _bfloat16() -> np.dtype[Any]:
    """Its module is loaded where the dtype is used."""
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


FLOATS = frozenset({DType.F32, DType.F64, DType.BF16})
INTEGERS = frozenset({DType.I32, DType.I64})
NUMBERS = FLOATS | INTEGERS
BOOLEANS = frozenset({DType.BOOL})
ANY = frozenset(DType)


class Batch(msgspec.Struct, frozen=True):
    """The symbolic dimension: a whole multiple of the number of records in a call."""

    multiple: int = 1

    def __str__(self) -> str:
        return "batch" if self.multiple == 1 else f"{self.multiple}*batch"

    def describe_value(self) -> str:
        return "the batch dimension"

    def show_value(self) -> str:
        return str(self)


#: Why nothing else can be done with it, for errors.
BATCH_HELP = (
    "the model is traced once for any number of records: the batch may be passed on, multiplied by "
    "a whole number and compared for equality"
)

Dimension: TypeAlias = int | Batch
Shape: TypeAlias = tuple[Dimension, ...]

MAXIMUM_ELEMENTS = 2**38
MAXIMUM_RANK = 32


class TensorType(msgspec.Struct, frozen=True):
    """A dtype and a shape."""

    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        return f"{format_shape(self.shape)} {self.dtype}"

    @property
    def rank(self) -> int:
        return len(self.shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def with_shape(self, shape: Sequence[Dimension]) -> TensorType:
        return TensorType(self.dtype, tuple(shape))


def format_shape(shape: Sequence[Dimension]) -> str:
    """`[batch, 16, 32]`"""
    return "[" + ", ".join(str(d) for d in shape) + "]"


def concrete(shape: Sequence[Dimension], batch: int) -> tuple[int, ...]:
    """The shape for a given number of records."""
    return tuple(d.multiple * batch if isinstance(d, Batch) else d for d in shape)


def split_elements(shape: Sequence[Dimension]) -> tuple[int, int]:
    """How many elements: a whole number, and the power of the batch that it is multiplied by."""
    count, power = 1, 0
    for dimension in shape:
        if isinstance(dimension, Batch):
            count *= dimension.multiple
            power += 1
        else:
            count *= dimension
    return count, power


def elements(shape: Sequence[Dimension]) -> int:
    """How many elements one record has."""
    return split_elements(shape)[0]


def multiply(a: Dimension, b: Dimension) -> Dimension | None:
    """The product of two dimensions; None for batch times batch, which has no name."""
    if isinstance(a, Batch):
        if isinstance(b, Batch):
            return None
        return Batch(a.multiple * b) if b else 0
    if isinstance(b, Batch):
        return Batch(a * b.multiple) if a else 0
    return a * b
