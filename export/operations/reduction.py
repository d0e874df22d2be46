"""What reductions share: axes become one element each, or go."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import (
    Array,
    Dimension,
    DType,
    TensorType,
    multiply,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation
from sexpgpu.export.operations.rules import fail_batch, fail_value, normalize_axes
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, Parameter, Signature


def reduction(dtypes: frozenset[DType], *more: Parameter) -> Signature:
    """The signature of a reduction."""
    return Signature(
        (
            Operand("x", dtypes),
            Attribute("axis", Kind.INTEGERS, None),
            Attribute("keep", Kind.BOOLEAN, False),
            *more,
        )
    )


class Reduction(Operation):
    """Reduces the axes `:axis`, all where there is none; `:keep` leaves them with length 1.

    bf16 is reduced in f32 and rounded once.
    """

    family = "reduce"
    #: Whether an axis without elements can be reduced.
    of_nothing = True

    @abstractmethod
    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        """The reduced array, with the axes kept; x is not bf16."""

    @abstractmethod
    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        """The ONNX name of the reduced tensor; x is not bf16 and has axes to reduce."""

    def result_dtype(self, dtype: DType) -> DType:
        return dtype

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x = inputs[0]
        axes = normalize_axes(self.name, attributes["axis"], x.rank)
        if not self.of_nothing and any(x.shape[axis] == 0 for axis in axes):
            fail_value(
                f"`{self.name}` of no elements has no value",
                came=f"axes {list(axes)} of {x}",
                expected="an element or more",
            )
        if attributes["keep"]:
            shape = [1 if axis in axes else d for axis, d in enumerate(x.shape)]
        else:
            shape = [d for axis, d in enumerate(x.shape) if axis not in axes]
        return [TensorType(self.result_dtype(x.dtype), tuple(shape))]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x = inputs[0]
        axes = normalize_axes(self.name, attributes["axis"], x.ndim)
        dtype = DType.of(x)
        wide = x.astype(np.float32) if dtype is DType.BF16 else x
        reduced = np.asarray(self.compute(wide, axes, attributes))
        if not attributes["keep"]:
            reduced = reduced.squeeze(axes)
        return [reduced.astype(self.result_dtype(dtype).numpy)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        x = inputs[0]
        axes = normalize_axes(self.name, attributes["axis"], x.type.rank)
        if axes:
            return [self.reduce(onnx, x, axes, int(attributes["keep"]), attributes)]
        # To ONNX no axes are all axes: every element is reduced alone, along a new axis.
        alone = x.type.with_shape([*x.shape, 1])
        name = onnx.add("Unsqueeze", x.name, onnx.ints([x.type.rank]))
        return [self.reduce(onnx, OnnxValue(name, alone), (x.type.rank,), 0, attributes)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        axes = normalize_axes(self.name, attributes["axis"], inputs[0].rank)
        if axis in axes:
            return [WHOLE]
        if attributes["keep"]:
            return [Apart(axis)]
        return [Apart(axis - sum(gone < axis for gone in axes))]


def reduced_size(x: TensorType, axes: Sequence[int]) -> Dimension:
    """How many elements become one."""
    size: Dimension | None = 1
    for axis in axes:
        size = None if size is None else multiply(size, x.shape[axis])
    if size is None:
        fail_batch("two axes of the batch cannot be reduced together", came=str(x))
    return size


def with_nan(onnx: Lowering, found: str, x: OnnxValue, axes: tuple[int, ...], keep: int) -> str:
    """`found`, but NaN where x has one: ReduceMax and ReduceMin may pass over it."""
    marks = onnx.cast(onnx.add("IsNaN", x.name), DType.F32)
    marked = onnx.add("ReduceMax", marks, onnx.ints(axes), keepdims=keep)
    nan = onnx.scalar(float("nan"), x.dtype)
    return onnx.add("Where", onnx.cast(marked, DType.BOOL), nan, found)
