"""Tensors while a program is traced: symbolic values, and what else may stand for one."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.schemas.errors import SexpgpuError

Number: TypeAlias = int | float | bool


class Tensor:
    """A value of the graph, as the language hands it on."""

    __slots__ = ("value",)

    is_tensor = True

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def type(self) -> TensorType:
        return self.value.type

    def describe_value(self) -> str:
        return f"a tensor {self.type}"

    def show_value(self) -> str:
        return f"<tensor {self.type}>"


class Initializer:
    """How a parameter's first value is drawn: `(normal 0.02)`, `(glorot)`."""

    __slots__ = ("arguments", "name")

    def __init__(self, name: str, arguments: tuple[float, ...]) -> None:
        self.name = name
        self.arguments = arguments

    def describe_value(self) -> str:
        return "an initializer"

    def show_value(self) -> str:
        return "(" + " ".join([self.name, *(repr(a) for a in self.arguments)]) + ")"


class Parameter(Tensor):
    """A weight: a tensor that has a value before the model is applied.

    `path` is where in the model it stands, empty until the model's parts were walked; `load` and
    `key` name the file and the entry that its value is read from.
    """

    __slots__ = ("frozen", "init", "key", "load", "path")

    def __init__(
        self,
        type: TensorType,
        init: Initializer,
        *,
        load: str | None = None,
        key: str | None = None,
        frozen: bool = False,
    ) -> None:
        super().__init__(Value(type))
        self.init = init
        self.load = load
        self.key = key
        self.frozen = frozen
        self.path = ""

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        count = 1
        for dimension in self.type.shape:
            assert not isinstance(dimension, Batch)
            count *= dimension
        return count

    def describe_value(self) -> str:
        return f"a parameter {self.type}"

    def show_value(self) -> str:
        return f"<parameter {self.path or '?'} {self.type}>"


def is_tensor(value: object) -> bool:
    """Whether a value of the language is a tensor, parameters included."""
    return isinstance(value, Tensor)


def is_number(value: object) -> bool:
    """Whether a value may stand for a tensor of rank 0."""
    return isinstance(value, int | float)


def number_array(number: Number, dtype: DType) -> Any:
    """The number as an array of rank 0.

    Raises E-DTYPE-001 where the dtype cannot hold it as it is meant: a fraction among whole
    numbers, a number among booleans.
    """
    fits = {
        DType.BOOL: isinstance(number, bool),
        DType.I32: float(number).is_integer() and -(2**31) <= number < 2**31,
        DType.I64: float(number).is_integer() and -(2**63) <= number < 2**63,
    }
    if not fits.get(dtype, True):
        raise SexpgpuError(
            "E-DTYPE-001",
            f"the number {number} cannot stand for a tensor of {dtype}",
            help="convert the tensor: `(cast x f32)`" if dtype.is_integer else None,
        )
    with np.errstate(over="ignore"):
        return np.asarray(int(number) if dtype.is_integer else number).astype(dtype.numpy)


def default_dtype(number: Number) -> DType:
    """The dtype of a number that no tensor gives one."""
    if isinstance(number, bool):
        return DType.BOOL
    return DType.I32 if isinstance(number, int) else DType.F32
