"""Tensors of 0 and 1: where two numbers are equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import INTEGERS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.creation import Creation, check_dimensions, positions
from sexpgpu.export.operations.operation import Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import normalize_axis
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class Eye(Creation):
    """1 on a diagonal and 0 elsewhere; `:offset` moves the diagonal up, or down where negative.

    As `numpy.eye`; `:columns` makes it a matrix that is not square.

    ONNX: Equal of row and column numbers, then Cast.
    """

    name = "eye"
    signature = signature(
        Attribute("rows", Kind.INTEGER, keyword=False),
        Attribute("columns", Kind.INTEGER, None),
        Attribute("offset", Kind.INTEGER, 0),
        Attribute("dtype", Kind.DTYPE, DType.F32),
    )
    constraints = ("Rows and columns are 0 or more.",)
    example = ("(eye 2 :columns 3 :offset 1 :dtype i32)", "[[0 1 0] [0 0 1]]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        shape = self._shape(attributes)
        check_dimensions(self.name, shape)
        return [TensorType(attributes["dtype"], shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        rows, columns = self._shape(attributes)
        # Past the corners there is nothing, and an offset may be larger than NumPy counts.
        offset = min(max(attributes["offset"], -rows), columns)
        return [np.eye(rows, columns, offset).astype(attributes["dtype"].numpy)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        rows, columns = self._shape(attributes)
        offset = min(max(attributes["offset"], -rows), columns)
        down = onnx.reshape(positions(onnx, rows), [rows, 1])
        across = onnx.add("Sub", positions(onnx, columns), onnx.scalar(offset, DType.I64))
        return [_as_numbers(onnx, onnx.add("Equal", down, across), results[0].dtype)]

    def varies_along(self, attributes: Attributes, result: TensorType) -> frozenset[int]:
        return frozenset({0, 1})

    def _shape(self, attributes: Attributes) -> tuple[int, int]:
        rows, columns = attributes["rows"], attributes["columns"]
        return rows, rows if columns is None else columns


@operation
class OneHot(Operation):
    """Along a new axis of the depth, 1 at the index and 0 elsewhere.

    Negative indices count from the end; an index out of range has no 1.

    ONNX: Equal with the numbers up to the depth, then Cast.
    """

    name = "one-hot"
    family = "creation"
    signature = signature(
        Operand("indices", INTEGERS, group="I"),
        Attribute("depth", Kind.INTEGER, keyword=False),
        Attribute("axis", Kind.INTEGER, -1),
        Attribute("dtype", Kind.DTYPE, DType.F32),
    )
    constraints = ("The depth is 0 or more.", "The axis is one of the result.")
    example = (
        "(one-hot (tensor (list 0 -1 5)) 3)",
        "[[1.0 0.0 0.0] [0.0 0.0 1.0] [0.0 0.0 0.0]]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        check_dimensions(self.name, [attributes["depth"]])
        shape, axis = inputs[0].shape, self._axis(inputs[0].rank, attributes)
        return [
            TensorType(attributes["dtype"], (*shape[:axis], attributes["depth"], *shape[axis:]))
        ]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        depth = attributes["depth"]
        indices = inputs[0].astype(np.int64)
        indices = np.where(indices < 0, indices + depth, indices)
        axis = self._axis(indices.ndim, attributes)
        classes = np.arange(depth).reshape(self._column(depth, indices.ndim, axis))
        return [(np.expand_dims(indices, axis) == classes).astype(attributes["dtype"].numpy)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        depth, rank = attributes["depth"], inputs[0].type.rank
        axis = self._axis(rank, attributes)
        indices = onnx.cast(inputs[0].name, DType.I64)
        negative = onnx.add("Less", indices, onnx.scalar(0, DType.I64))
        from_end = onnx.add("Add", indices, onnx.scalar(depth, DType.I64))
        indices = onnx.add("Where", negative, from_end, indices)
        indices = onnx.add("Unsqueeze", indices, onnx.ints([axis]))
        classes = onnx.reshape(positions(onnx, depth), self._column(depth, rank, axis))
        return [_as_numbers(onnx, onnx.add("Equal", indices, classes), results[0].dtype)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [Apart(axis + (axis >= self._axis(inputs[0].rank, attributes)))]

    def _axis(self, rank: int, attributes: Attributes) -> int:
        return normalize_axis(self.name, attributes["axis"], rank + 1)

    def _column(self, depth: int, rank: int, axis: int) -> list[int]:
        return [depth, *[1] * (rank - axis)]


def _as_numbers(onnx: Lowering, truths: str, dtype: DType) -> str:
    return truths if dtype is DType.BOOL else onnx.cast(truths, dtype)
