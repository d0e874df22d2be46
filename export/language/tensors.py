"""Tensors while a program is traced: symbolic values, and what else may stand for one."""

from __future__ import annotations

import math
from typing import TypeAlias

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.language.data import write_literal
from sexpgpu.export.operations.rules import fitting
from sexpgpu.schemas.errors import SexpgpuError, Span

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
        return f"#<tensor {self.type}>"


class Initializer:
    """How a parameter's first value is drawn: `(normal 0.02)`, `(glorot)`.

    Or what it is, where `value` is a value of the graph that depends on no input and no weight.
    """

    __slots__ = ("arguments", "name", "value")

    def __init__(
        self, name: str, arguments: tuple[float, ...] = (), value: Value | None = None
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.value = value

    def describe_value(self) -> str:
        return "an initializer"

    def show_value(self) -> str:
        if self.value is not None:
            return f"#<tensor {self.value.type}>"
        return "(" + " ".join([self.name, *(repr(a) for a in self.arguments)]) + ")"


class Weight(Value):
    """A parameter's value in the graph; `span` is where the program declares it."""

    __slots__ = ("span",)

    def __init__(self, type: TensorType, span: Span | None) -> None:
        super().__init__(type)
        self.span = span


class Parameter(Tensor):
    """A weight: a tensor that has a value before the model is applied.

    `path` is where in the model it stands, empty until the model's parts were walked; `load` and
    `key` name the file and the entry that its value is read from; `span` is where it is declared.
    """

    __slots__ = ("frozen", "init", "key", "load", "path", "span")

    def __init__(
        self,
        type: TensorType,
        init: Initializer,
        *,
        load: str | None = None,
        key: str | None = None,
        frozen: bool = False,
        span: Span | None = None,
    ) -> None:
        super().__init__(Weight(type, span))
        self.init = init
        self.load = load
        self.key = key
        self.frozen = frozen
        self.path = ""
        self.span = span

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
        return f"#<parameter {self.path or self.type}>"


def is_number(value: object) -> bool:
    """Whether a value may stand for a tensor of rank 0."""
    return isinstance(value, int | float)


def number_array(name: str, number: Number, dtype: DType) -> Array:
    """The number as an array of rank 0, for the operation `name`.

    Raises E-DTYPE-001 where the dtype cannot hold it as it is meant: a fraction among whole
    numbers, a number among booleans or a boolean among numbers; E-VALUE-001 where it is too large.
    """
    if isinstance(number, bool) is not (dtype is DType.BOOL):
        kind = "the boolean" if isinstance(number, bool) else "the number"
        advice = "`(cast x i32)` makes numbers of booleans"
        if dtype is DType.BOOL:
            advice = "a boolean is `true` or `false`; a comparison such as `(> x 0)` gives booleans"
        raise _unfit(kind, number, dtype, advice)
    if dtype.is_integer and math.isfinite(number) and not float(number).is_integer():
        raise _unfit("the number", number, dtype, "convert the tensor: `(cast x f32)`")
    return fitting(name, number, dtype)


def _unfit(kind: str, number: Number, dtype: DType, help: str) -> SexpgpuError:
    return SexpgpuError(
        "E-DTYPE-001",
        f"{kind} {write_literal(number)} cannot stand for a tensor of {dtype}",
        help=help,
    )


def default_dtype(number: Number) -> DType:
    """The dtype of a number that no tensor gives one."""
    if isinstance(number, bool):
        return DType.BOOL
    return DType.I32 if isinstance(number, int) else DType.F32
