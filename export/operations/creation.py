"""Operations that make a tensor out of numbers, sizes or indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import (
    Array,
    Batch,
    Dimension,
    DType,
    Shape,
    TensorType,
    format_shape,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Fate, Operation, Rows, operation
from sexpgpu.export.operations.rules import fail_shape, fail_value, fitting
from sexpgpu.export.operations.signature import Attribute, Kind, signature
from sexpgpu.schemas.errors import SexpgpuError

#: Elements that are written into the file; more are computed by the runtime.
_STORED = 65_536


class Creation(Operation):
    """Has no operands, so that no axis comes in."""

    family = "creation"

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [WHOLE for _ in results]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        return None


@operation
class Constant(Creation):
    """A tensor whose elements stand in the program: what `(tensor …)` makes.

    ONNX: an initializer; equal ones are stored once.
    """

    name = "constant"
    signature = signature(Attribute("value", Kind.ARRAY, keyword=False))
    example = ("(tensor (list (list 1.0 2.0) (list 3.0 4.0)))", "[[1.0 2.0] [3.0 4.0]]")
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        value: Array = attributes["value"]
        return [TensorType(DType.of(value), value.shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [attributes["value"]]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        return [onnx.constant(attributes["value"])]


@operation
class Full(Creation):
    """One number everywhere; `(zeros shape)` and `(ones shape)` are 0 and 1.

    As `numpy.full`.

    ONNX: Expand.
    """

    name = "full"
    signature = signature(
        Attribute("shape", Kind.SHAPE, keyword=False),
        Attribute("value", Kind.NUMBER, keyword=False),
        Attribute("dtype", Kind.DTYPE, DType.F32),
    )
    constraints = ("No dimension is negative.", "The dtype has the number.")
    example = ("(full (list 2 3) 7 :dtype i32)", "[[7 7 7] [7 7 7]]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        shape: Shape = attributes["shape"]
        check_dimensions(self.name, shape)
        fitting(self.name, attributes["value"], attributes["dtype"])
        return [TensorType(attributes["dtype"], shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        value = fitting(self.name, attributes["value"], attributes["dtype"])
        return [np.broadcast_to(value, attributes["shape"])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        value = onnx.constant(fitting(self.name, attributes["value"], results[0].dtype))
        if results[0].rank == 0:
            return [value]
        return [onnx.add("Expand", value, onnx.shape(results[0].shape))]


@operation
class Iota(Creation):
    """The numbers `start + i * step` for i from 0 up to but without the length.

    As `numpy.arange`; floats are computed in f64 and rounded (bf16 by way of f32). Along the batch
    it tells records by their place, so that a model that uses it is not independent of the batch.

    ONNX: an initializer; CumSum of ones along the batch or for more than 65,536 elements.
    """

    name = "iota"
    signature = signature(
        Attribute("length", Kind.SHAPE, keyword=False),
        Attribute("start", Kind.NUMBER, 0.0),
        Attribute("step", Kind.NUMBER, 1.0),
        Attribute("dtype", Kind.DTYPE, DType.I32),
    )
    constraints = (
        "The length is one dimension, 0 or more.",
        "The dtype is not bool.",
        "Of a dtype of whole numbers, start and step are whole, and the last number is in range.",
    )
    example = ("(iota 4 :start 1 :step 2)", "[1 3 5 7]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        shape: Shape = attributes["length"]
        dtype: DType = attributes["dtype"]
        if len(shape) != 1:
            fail_shape("`iota` makes one axis", came=format_shape(shape), expected="one dimension")
        check_dimensions(self.name, shape)
        if dtype is DType.BOOL:
            raise SexpgpuError(
                "E-DTYPE-002", "`iota` has no meaning for bool", help="compare numbers: `(< x 3)`"
            )
        start = fitting(self.name, attributes["start"], dtype)
        step = fitting(self.name, attributes["step"], dtype)
        if dtype.is_integer and isinstance(shape[0], int) and shape[0]:
            last = int(start) + int(step) * (shape[0] - 1)
            fitting(self.name, last, dtype)
        return [TensorType(dtype, shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        (length,) = attributes["length"]
        dtype: DType = attributes["dtype"]
        wide = np.dtype(np.int64 if dtype.is_integer else np.float64)
        places = np.arange(length, dtype=np.int64).astype(wide)
        numbers = wide.type(attributes["start"]) + places * wide.type(attributes["step"])
        if dtype is DType.BF16:
            numbers = numbers.astype(np.float32)
        return [numbers.astype(dtype.numpy)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        (length,) = results[0].shape
        dtype = results[0].dtype
        if isinstance(length, int) and length <= _STORED:
            return [onnx.constant(self.evaluate([], {**attributes, "dtype": dtype})[0])]
        wide = DType.I64 if dtype.is_integer else DType.F64
        places = positions(onnx, length)
        if wide is not DType.I64:
            places = onnx.cast(places, wide)
        scaled = onnx.add("Mul", places, onnx.scalar(attributes["step"], wide))
        numbers = onnx.add("Add", scaled, onnx.scalar(attributes["start"], wide))
        return [numbers if dtype is wide else onnx.cast(numbers, dtype)]

    def varies_along(self, attributes: Attributes, result: TensorType) -> frozenset[int]:
        return frozenset({0})


def check_dimensions(name: str, shape: Sequence[Dimension]) -> None:
    """Raises E-VALUE-001 where a dimension is negative."""
    if any(not isinstance(d, Batch) and d < 0 for d in shape):
        fail_value(
            f"`{name}` is given a negative dimension",
            came=format_shape(shape),
            expected="dimensions from 0 up",
        )


def positions(onnx: Lowering, length: Dimension) -> str:
    """The i64 numbers 0, 1, … of an axis."""
    if isinstance(length, int) and length <= _STORED:
        return onnx.constant(np.arange(length, dtype=np.int64))
    ones = onnx.add("Expand", onnx.scalar(1, DType.I64), onnx.shape([length]))
    return onnx.add("CumSum", ones, onnx.scalar(0, DType.I64), exclusive=1)
