"""Operations that put tensors together and take them apart along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array, Batch, Dimension, TensorType, format_shape
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import (
    fail_batch,
    fail_shape,
    fail_value,
    known,
    normalize_axis,
)
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature

#: A split makes one result a part, and a node keeps a list of them.
MAXIMUM_PARTS = 65_536


class AlongAxis(Operation):
    """Works along the axis `:axis`; the positions of all other axes stay apart."""

    family = "shape"
    moves_data = True

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        own = normalize_axis(self.name, attributes["axis"], inputs[0].rank)
        return [WHOLE if axis == own else Apart(axis) for _ in results]


@operation
class Concat(AlongAxis):
    """Tensors one after another along an axis that they have.

    As `numpy.concatenate`.

    ONNX: Concat.
    """

    name = "concat"
    signature = signature(Operand("tensors", variadic=True), Attribute("axis", Kind.INTEGER, -1))
    constraints = (
        "There is a tensor or more, and each has the axis.",
        "But for the axis the tensors have one shape.",
        "Where one of the tensors has the batch along the axis, all have it.",
    )
    example = ("(concat (list (tensor (list 1 2)) (tensor (list 3))))", "[1 2 3]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        if not inputs:
            fail_value("`concat` needs a tensor", came="an empty list")
        axis = normalize_axis(self.name, attributes["axis"], inputs[0].rank)
        first = inputs[0].shape
        for type in inputs:
            shape = type.shape
            if len(shape) != len(first) or any(
                a != axis and d != first[a] for a, d in enumerate(shape)
            ):
                fail_shape(
                    "`concat` takes tensors of one shape but for the axis",
                    came=f"{format_shape(first)} and {format_shape(shape)} along axis {axis}",
                )
        total = self._total([type.shape[axis] for type in inputs])
        return [inputs[0].with_shape([*first[:axis], total, *first[axis + 1 :]])]

    def _total(self, lengths: Sequence[Dimension]) -> Dimension:
        sizes = [d for d in lengths if not isinstance(d, Batch)]
        multiples = [d.multiple for d in lengths if isinstance(d, Batch)]
        if sizes and multiples:
            fail_batch(
                "`concat` would lengthen the batch by a fixed number of records",
                came=" and ".join(dict.fromkeys(str(d) for d in lengths)),
                help="join along another axis",
            )
        return Batch(sum(multiples)) if multiples else sum(sizes)

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [np.concatenate(inputs, axis=attributes["axis"])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axis = attributes["axis"] % results[0].rank
        return [onnx.add("Concat", *(value.name for value in inputs), axis=axis)]


@operation
class Stack(Operation):
    """Tensors of one shape along a new axis of the result.

    As `numpy.stack`.

    ONNX: Unsqueeze of each, then Concat.
    """

    name = "stack"
    family = "shape"
    signature = signature(Operand("tensors", variadic=True), Attribute("axis", Kind.INTEGER, -1))
    constraints = (
        "There is a tensor or more.",
        "The tensors have one shape.",
        "The axis is one of the result.",
    )
    example = ("(stack (list (tensor (list 1 2)) (tensor (list 3 4))) :axis 0)", "[[1 2] [3 4]]")
    moves_data = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        if not inputs:
            fail_value("`stack` needs a tensor", came="an empty list")
        shape = inputs[0].shape
        for type in inputs:
            if type.shape != shape:
                fail_shape(
                    "`stack` takes tensors of one shape",
                    came=f"{format_shape(shape)} and {format_shape(type.shape)}",
                    help="`concat` joins along an axis that the tensors have",
                )
        axis = self._axis(inputs, attributes)
        return [inputs[0].with_shape([*shape[:axis], len(inputs), *shape[axis:]])]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        return [np.stack(inputs, axis=attributes["axis"])]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axis = attributes["axis"] % results[0].rank
        parts = [onnx.add("Unsqueeze", value.name, onnx.ints([axis])) for value in inputs]
        return [parts[0] if len(parts) == 1 else onnx.add("Concat", *parts, axis=axis)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [Apart(axis + (axis >= self._axis(inputs, attributes)))]

    def _axis(self, inputs: Sequence[TensorType], attributes: Attributes) -> int:
        return normalize_axis(self.name, attributes["axis"], inputs[0].rank + 1)


@operation
class Split(AlongAxis):
    """A list of the parts of a tensor along an axis.

    One number is how many equal parts, a list of several their lengths. The parts together are
    the tensor, as in `numpy.split`.

    ONNX: Split.
    """

    name = "split"
    signature = signature(
        Operand("x"),
        Attribute("parts", Kind.INTEGERS, keyword=False),
        Attribute("axis", Kind.INTEGER, -1),
    )
    constraints = (
        "A number of parts is 1 or more and divides the length of the axis.",
        "Lengths of parts are 0 or more, and their sum is the length of the axis.",
        "The batch is split only into equal parts, and their number divides its multiple.",
        "There are at most 65,536 parts.",
        "`x` has the axis.",
    )
    example = ("(split (tensor (list 1 2 3 4)) 2)", "(list [1 2] [3 4])")
    gives_list = True

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        shape = inputs[0].shape
        axis = normalize_axis(self.name, attributes["axis"], len(shape))
        lengths = self._lengths(shape[axis], attributes["parts"])
        return [inputs[0].with_shape([*shape[:axis], n, *shape[axis + 1 :]]) for n in lengths]

    def _lengths(self, length: Dimension, parts: tuple[int, ...]) -> Sequence[Dimension]:
        if len(parts) > MAXIMUM_PARTS or (len(parts) == 1 and parts[0] > MAXIMUM_PARTS):
            fail_value(
                "`split` would make too many parts",
                came=f"{max(len(parts), parts[0]):,}",
                expected=f"at most {MAXIMUM_PARTS:,}",
            )
        if len(parts) == 1:
            return self._equal(length, parts[0])
        size = known(self.name, "how long the axis is", length)
        if min(parts, default=0) < 0 or sum(parts) != size or not parts:
            fail_value(
                "the parts of `split` must add up to the axis",
                came=f"{list(parts)} of an axis of length {size}",
            )
        return parts

    def _equal(self, length: Dimension, count: int) -> Sequence[Dimension]:
        total = length.multiple if isinstance(length, Batch) else length
        if count < 1 or total % count:
            if isinstance(length, Batch) and count >= 1:
                fail_batch(
                    "`split` cannot divide the batch",
                    came=f"{count} parts of {length}",
                    help="split another axis",
                )
            fail_value(
                "`split` makes parts of one length",
                came=f"{count} parts of an axis of length {length}",
                expected="a number of parts that divides the length, or a list of lengths",
            )
        part = total // count
        return [Batch(part) if isinstance(length, Batch) else part] * count

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        parts = attributes["parts"]
        cuts = parts[0] if len(parts) == 1 else np.cumsum(parts[:-1]).tolist()
        return np.split(inputs[0], cuts, axis=attributes["axis"])

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        axis = attributes["axis"] % inputs[0].type.rank
        if len(results) == 1:
            return [inputs[0].name]
        lengths = [type.shape[axis] for type in results]
        fixed = [d for d in lengths if not isinstance(d, Batch)]
        sizes = onnx.ints(fixed) if fixed else ""
        equal = None if fixed else len(results)
        return onnx.add(
            "Split", inputs[0].name, sizes, outputs=len(results), axis=axis, num_outputs=equal
        )
