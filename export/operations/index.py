"""Operations that read or add to a tensor at places that another tensor names.

Indices are whole numbers; negative ones count from the end, and one that is out of range stops the
call, in the reference (E-VALUE-001) and in runtimes alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import INTEGERS, Array, DType, TensorType, format_shape
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import fail_shape, fail_value, known, normalize_axis
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


def check_indices(name: str, indices: Array, size: int) -> None:
    """Raises E-VALUE-001 where an index is not in an axis of this size."""
    outside = (indices < -size) | (indices >= size)
    if outside.any():
        fail_value(
            f"`{name}` is given an index out of range",
            came=str(indices[outside].flat[0]),
            expected=f"{-size} to {size - 1}" if size else "no index: the axis is empty",
        )


@operation
class Take(Operation):
    """What stands at the indices along an axis.

    As `numpy.take`: the indices' shape takes the place of the axis. An embedding is
    `(take table tokens)`.

    ONNX: Gather.
    """

    name = "take"
    family = "index"
    signature = signature(
        Operand("x"), Operand("indices", INTEGERS, group="I"), Attribute("axis", Kind.INTEGER, 0)
    )
    constraints = ("`x` has the axis.", "Indices are in the range of the axis.")
    example = (
        "(take (tensor (list (list 1 2) (list 3 4) (list 5 6))) (tensor (list 2 -3)))",
        "[[5 6] [1 2]]",
    )
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, indices = inputs
        axis = normalize_axis(self.name, attributes["axis"], x.rank)
        return [x.with_shape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x, indices = inputs
        axis = attributes["axis"] % x.ndim
        check_indices(self.name, indices, x.shape[axis])
        return [np.asarray(np.take(x, indices, axis=axis))]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axis = attributes["axis"] % inputs[0].type.rank
        return [onnx.add("Gather", inputs[0].name, inputs[1].name, axis=axis)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        own = attributes["axis"] % inputs[0].rank
        if operand == 1:
            return [Apart(own + axis)]
        if axis == own:
            return [WHOLE]
        return [Apart(axis if axis < own else axis + inputs[1].rank - 1)]


@operation
class TakeAlong(Operation):
    """For each place of the indices, what stands at the index along the axis.

    `result[…, i, …] = x[…, indices[…, i, …], …]`; as `numpy.take_along_axis`, without broadcasting.

    ONNX: GatherElements.
    """

    name = "take-along"
    family = "index"
    signature = signature(
        Operand("x"), Operand("indices", INTEGERS, group="I"), Attribute("axis", Kind.INTEGER, -1)
    )
    constraints = (
        "`x` has the axis, and the indices have its rank.",
        "But for the axis, `x` and the indices have one shape.",
        "Indices are in the range of the axis.",
    )
    example = (
        "(take-along (tensor (list (list 1 2) (list 3 4))) (tensor (list (list 1) (list 0))))",
        "[[2] [3]]",
    )
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, indices = inputs
        axis = normalize_axis(self.name, attributes["axis"], x.rank)
        if x.rank != indices.rank or any(
            a != b for i, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)) if i != axis
        ):
            fail_shape(
                "`take-along` takes a tensor and indices of one shape but for the axis",
                came=f"{format_shape(x.shape)} and {format_shape(indices.shape)}, axis {axis}",
                help="repeat one of them with `broadcast-to`",
            )
        return [x.with_shape(indices.shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x, indices = inputs
        check_indices(self.name, indices, x.shape[attributes["axis"]])
        return [np.take_along_axis(x, indices, attributes["axis"])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axis = attributes["axis"] % inputs[0].type.rank
        return [onnx.add("GatherElements", inputs[0].name, inputs[1].name, axis=axis)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        read_whole = operand == 0 and axis == attributes["axis"] % inputs[0].rank
        return [WHOLE if read_whole else Apart(axis)]


class ByCoordinates(Operation):
    """Indices `[..., k]` name places by their coordinates along k axes of `x`.

    The first `:batch-dims` axes are shared: places there are places of the same position. What
    stands at a place is the part of `x` over the axes that remain.
    """

    family = "index"

    def places(self, x: TensorType, indices: TensorType, attributes: Attributes) -> TensorType:
        """The type of what stands at the places; checks x and indices against each other."""
        shared = attributes["batch-dims"]
        if not 0 <= shared < min(x.rank, indices.rank):
            fail_value(
                f"`{self.name}` cannot share these batch dimensions",
                came=f"{shared} of a tensor of rank {x.rank} and indices of rank {indices.rank}",
                expected="0 or more, and an axis left in both",
            )
        if x.shape[:shared] != indices.shape[:shared]:
            fail_shape(
                f"the batch dimensions of `{self.name}` differ",
                came=f"{format_shape(x.shape[:shared])} and {format_shape(indices.shape[:shared])}",
            )
        count = known(self.name, "how many coordinates a place has", indices.shape[-1])
        if not 1 <= count <= x.rank - shared:
            fail_shape(
                f"the last axis of the indices of `{self.name}` holds a place's coordinates",
                came=f"{count} coordinates for {format_shape(x.shape[shared:])}",
                expected=f"1 to {x.rank - shared}",
            )
        return x.with_shape([*indices.shape[:-1], *x.shape[shared + count :]])

    def indexed(self, x: TensorType, indices: TensorType, attributes: Attributes) -> range:
        """The axes of x that coordinates run along."""
        shared: int = attributes["batch-dims"]
        count = indices.shape[-1]
        assert isinstance(count, int)
        return range(shared, shared + count)

    def select(self, x: Array, indices: Array, attributes: Attributes) -> tuple[Array, ...]:
        """The index that NumPy takes for the places."""
        shared = attributes["batch-dims"]
        coordinates = np.moveaxis(indices, -1, 0)
        for axis, coordinate in enumerate(coordinates, start=shared):
            check_indices(self.name, coordinate, x.shape[axis])
        places = np.indices(indices.shape[:-1], sparse=True)
        return (*places[:shared], *coordinates)


@operation
class GatherNd(ByCoordinates):
    """What stands at the places that the indices name by their coordinates.

    `result[b…, i…] = x[b…, indices[b…, i…, 0], …, indices[b…, i…, k-1], …]`, with `:batch-dims`
    axes b. As ONNX's GatherND.

    ONNX: GatherND.
    """

    name = "gather-nd"
    signature = signature(
        Operand("x"),
        Operand("indices", INTEGERS, group="I"),
        Attribute("batch-dims", Kind.INTEGER, 0),
    )
    constraints = (
        "`:batch-dims` is 0 or more, less than both ranks, and those axes are equal.",
        "The last axis of the indices is 1 to as many as `x` has axes after the batch dimensions.",
        "Coordinates are in the range of their axis.",
    )
    example = (
        "(gather-nd (tensor (list (list 1 2) (list 3 4))) (tensor (list (list 0 1) (list 1 -1))))",
        "[2 4]",
    )
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        return [self.places(inputs[0], inputs[1], attributes)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x, indices = inputs
        return [np.asarray(x[self.select(x, indices, attributes)])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        x, indices = inputs
        wide = indices.name if indices.dtype is DType.I64 else onnx.cast(indices.name, DType.I64)
        return [onnx.add("GatherND", x.name, wide, batch_dims=attributes["batch-dims"])]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        x, indices = inputs
        own = self.indexed(x, indices, attributes)
        if operand == 1:
            return [Apart(axis) if axis < indices.rank - 1 else WHOLE]
        if axis in own:
            return [WHOLE]
        return [Apart(axis if axis < own.start else axis - own.stop + indices.rank - 1)]
