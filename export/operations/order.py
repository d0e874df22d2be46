"""The order of elements along an axis, and the positions of the largest and smallest.

Positions are i32, and of equal elements the lower position comes first.  NaN counts as larger than
every number (for `argmin` as smaller), and infinity as equal to the largest finite number, so that
one comparison of numbers orders all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import NUMBERS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import fail_value, normalize_axis
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature

#: Positions are i32.
_LONGEST = 2**31 - 1


class AlongOrder(Operation):
    """Compares the elements along `:axis`; the positions of all other axes stay apart."""

    family = "order"

    def axis_of(self, x: TensorType, attributes: Attributes) -> int:
        """The axis, whose positions must be countable in i32."""
        axis = normalize_axis(self.name, attributes["axis"], x.rank)
        length = x.shape[axis]
        if isinstance(length, int) and length > _LONGEST:
            fail_value(
                f"`{self.name}` counts positions in i32",
                came=f"an axis of length {length:,}",
                expected=f"at most {_LONGEST:,}",
            )
        return axis

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        own = self.axis_of(inputs[0], attributes)
        return [WHOLE if axis == own else Apart(axis) for _ in results]


def comparable(x: Array, nan: float = np.inf) -> Array:
    """Numbers in the order of x; NaN is `nan`, an infinity that no number is."""
    if x.dtype.kind == "i":
        return x
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    largest = np.finfo(wide.dtype).max
    bounded = np.minimum(wide, largest) if nan > 0 else np.maximum(wide, -largest)
    return np.where(np.isnan(wide), wide.dtype.type(nan), bounded)


def lower_comparable(onnx: Lowering, x: OnnxValue, nan: float = np.inf) -> str:
    """`comparable` in ONNX."""
    if x.dtype.is_integer:
        return x.name
    largest = float(np.finfo(x.dtype.numpy).max)
    bound = onnx.scalar(largest if nan > 0 else -largest, x.dtype)
    bounded = onnx.add("Min" if nan > 0 else "Max", x.name, bound)
    return onnx.add("Where", onnx.add("IsNaN", x.name), onnx.scalar(nan, x.dtype), bounded)


class PositionOf(AlongOrder):
    """The first position of an extreme along an axis, which goes, or stays with length 1."""

    signature = signature(
        Operand("x", NUMBERS),
        Attribute("axis", Kind.INTEGER, -1),
        Attribute("keep", Kind.BOOLEAN, False),
    )
    constraints = (
        "`x` has the axis, of 2^31 - 1 elements at most.",
        "There is an element along the axis.",
    )
    operator: ClassVar[str]
    #: What NaN counts as.
    nan: ClassVar[float]

    @abstractmethod
    def find(self, x: Array, axis: int) -> Array:
        """The positions, with the axis kept."""

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x = inputs[0]
        axis = self.axis_of(x, attributes)
        if x.shape[axis] == 0:
            fail_value(
                f"`{self.name}` of no elements has no value",
                came=f"axis {axis} of {x}",
                expected="an element or more",
            )
        kept = (1,) if attributes["keep"] else ()
        return [TensorType(DType.I32, (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        axis = attributes["axis"]
        found = self.find(comparable(inputs[0], self.nan), axis).astype(np.int32)
        return [found if attributes["keep"] else np.squeeze(found, axis)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axis = attributes["axis"] % inputs[0].type.rank
        key = lower_comparable(onnx, inputs[0], self.nan)
        found = onnx.add(self.operator, key, axis=axis, keepdims=int(attributes["keep"]))
        return [onnx.cast(found, DType.I32)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        own = self.axis_of(inputs[0], attributes)
        if axis == own:
            return [WHOLE]
        return [Apart(axis if attributes["keep"] or axis < own else axis - 1)]


@operation
class Argmax(PositionOf):
    """The first position of the largest element; of NaN where there is one, as in `numpy.argmax`.

    ONNX: ArgMax; on floats after a Where that puts NaN above all numbers.
    """

    name = "argmax"
    example = ("(argmax (tensor (list (list 1 4 4) (list 3 2 1))))", "[1 0]")
    operator = "ArgMax"
    nan = np.inf

    def find(self, x: Array, axis: int) -> Array:
        return np.asarray(np.argmax(x, axis=axis, keepdims=True))


@operation
class Argmin(PositionOf):
    """The first position of the smallest element; of NaN where there is one, as in `numpy.argmin`.

    ONNX: ArgMin; on floats after a Where that puts NaN below all numbers.
    """

    name = "argmin"
    example = ("(argmin (tensor (list (list 1 4 4) (list 3 2 1))))", "[0 2]")
    operator = "ArgMin"
    nan = -np.inf

    def find(self, x: Array, axis: int) -> Array:
        return np.asarray(np.argmin(x, axis=axis, keepdims=True))
