"""Resizing of images and signals by interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import ANY, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, Rows, operation
from sexpgpu.export.operations.rules import fail_shape, fail_value, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature
from sexpgpu.schemas.errors import SexpgpuError

#: The sharpness of cubic interpolation, that of torch, OpenCV and ONNX.
_CUBIC = -0.75


@dataclass(frozen=True, slots=True)
class Taps:
    """One axis: position i of the result is Σ over k of weights[k, i] · x[indices[k, i]]."""

    axis: int
    indices: Array
    weights: Array


@operation
class Resize(Operation):
    """The last axes of `x`, as many as `size` has entries, stretched or shrunk to `size`.

    Position i of an axis that goes from n to m positions lies at u = (i + 1/2) · n / m − 1/2, or
    at u = i · (n − 1) / (m − 1) with `align-corners` (0 where m is 1), and axes are interpolated
    one after the other:

    - `:nearest` takes x[⌊i · n / m⌋], any dtype;
    - `:linear` (the default) weighs the two neighbours of u, u no less than 0, by their distance;
    - `:cubic` weighs four by Keys' kernel with a = −0.75; R. Keys, "Cubic convolution
      interpolation for digital image processing", 1981.

    A neighbour outside the axis is the last one inside.  Nothing is smoothed when shrinking.  An
    axis that keeps its length is left as it is.  These are the modes of torch's `interpolate`.

    ONNX: Resize where runtimes mean exactly this; else Gather, and the weighted sum of Gathers.
    """

    name = "resize"
    family = "neural"
    signature = signature(
        Operand("x", ANY),
        Attribute("size", Kind.INTEGERS, keyword=False),
        Attribute("mode", Kind.WORD, "linear", choices=("nearest", "linear", "cubic")),
        Attribute("align-corners", Kind.BOOLEAN, False),
    )
    constraints = (
        "`size` has at least one entry and at most as many as `x` has axes.",
        "Every entry of `size` is at least 1.",
        "The resized axes of `x` have at least one position, and none is the batch.",
        "`:linear` and `:cubic` need floats.",
        "`:nearest` has no corners to align.",
    )
    example = ("(resize (tensor (list 1.0 3.0)) (list 4) :mode :linear)", "[1.0 1.5 2.5 3.0]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        (x,) = inputs
        size, mode = attributes["size"], attributes["mode"]
        if not 1 <= len(size) <= x.rank:
            fail_shape(
                "`resize` is given sizes for more or fewer axes than it can resize",
                came=f"{len(size)} sizes for {x}",
                expected=f"1 to {x.rank}, for the last axes" if x.rank else "a tensor with an axis",
            )
        if min(size) < 1:
            fail_value(
                "a size of `resize` is too small", came=str(list(size)), expected="at least 1"
            )
        kept = x.rank - len(size)
        lengths = [known(self.name, "the axes it resizes", d) for d in x.shape[kept:]]
        if 0 in lengths:
            fail_shape("`resize` has nothing to take positions from", came=str(x))
        if mode != "nearest" and not x.dtype.is_float:
            raise SexpgpuError(
                "E-DTYPE-002",
                f"`resize` interpolates floats, and `x` is {x.dtype}",
                came=str(x),
                help="convert it with `cast`, or take `:mode :nearest`",
            )
        if mode == "nearest" and attributes["align-corners"]:
            fail_value("`resize` aligns no corners in the mode nearest", came=":align-corners true")
        return [x.with_shape((*x.shape[:kept], *size))]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        (x,) = inputs
        if attributes["mode"] == "nearest":
            for axis, length, size in resized_axes(x.shape, attributes["size"]):
                x = np.take(x, nearest_indices(length, size), axis)
            return [x]
        y = x.astype(np.result_type(x.dtype, np.float32))
        for taps in all_taps(x.shape, attributes):
            column = (-1, *[1] * (x.ndim - 1 - taps.axis))
            weights = taps.weights.astype(y.dtype)
            y = sum(
                np.take(y, index, taps.axis) * weight.reshape(column)
                for index, weight in zip(taps.indices, weights, strict=True)
            )
        return [y.astype(x.dtype)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        (x,) = inputs
        lengths = tuple(d if isinstance(d, int) else 1 for d in x.shape)
        y = _native(onnx, x, lengths, attributes)
        if y is not None:
            return [y]
        y = x.name
        if attributes["mode"] == "nearest":
            for axis, length, size in resized_axes(lengths, attributes["size"]):
                y = onnx.add("Gather", y, onnx.constant(nearest_indices(length, size)), axis=axis)
            return [y]
        for taps in all_taps(lengths, attributes):
            column = (-1, *[1] * (x.type.rank - 1 - taps.axis))
            weights = taps.weights.astype(x.dtype.numpy)
            parts = [
                onnx.add(
                    "Mul",
                    onnx.add("Gather", y, onnx.constant(index), axis=taps.axis),
                    onnx.constant(weight.reshape(column)),
                )
                for index, weight in zip(taps.indices, weights, strict=True)
            ]
            y = onnx.add("Sum", *parts)
        return [y]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        kept = inputs[0].shape[axis] == results[0].shape[axis]
        return [Apart(axis) if kept else WHOLE]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        size = list(attributes["size"])
        entry = rows.axis - (rows.result.rank - len(size))
        if entry >= 0:
            size[entry] = rows.count
        return rows.inputs, {**attributes, "size": tuple(size)}


def resized_axes(shape: Sequence[int], size: Sequence[int]) -> list[tuple[int, int, int]]:
    """Axis, length and new length of every axis that changes."""
    first = len(shape) - len(size)
    return [
        (first + i, shape[first + i], new) for i, new in enumerate(size) if shape[first + i] != new
    ]


def nearest_indices(length: int, size: int) -> Array:
    return np.arange(size, dtype=np.int64) * length // size


def all_taps(shape: Sequence[int], attributes: Attributes) -> list[Taps]:
    return [
        _taps(axis, length, size, attributes["mode"], attributes["align-corners"])
        for axis, length, size in resized_axes(shape, attributes["size"])
    ]


def _taps(axis: int, length: int, size: int, mode: str, align_corners: bool) -> Taps:
    positions = np.arange(size, dtype=np.float64)
    if align_corners:
        at = positions * ((length - 1) / (size - 1)) if size > 1 else positions
    else:
        at = (positions + 0.5) * (length / size) - 0.5
    if mode == "linear":
        at = np.clip(at, 0, length - 1)
    first = np.floor(at)
    t = at - first
    if mode == "linear":
        # At the end of the axis both neighbours are the last position.
        t = np.where(first == length - 1, 0.5, t)
        offsets, weights = [0, 1], [1 - t, t]
    else:
        # Keys' kernel at the distances 1 + t, t, 1 − t and 2 − t.
        offsets = [-1, 0, 1, 2]
        weights = [_far(1 + t), _near(t), _near(1 - t), _far(2 - t)]
    indices = [np.clip(first.astype(np.int64) + offset, 0, length - 1) for offset in offsets]
    return Taps(axis, np.stack(indices), np.stack(weights))


def _near(d: Array) -> Array:
    """Keys' kernel at distances up to 1."""
    return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1


def _far(d: Array) -> Array:
    """Keys' kernel at distances from 1 to 2."""
    return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC


def _native(
    onnx: Lowering, x: OnnxValue, lengths: tuple[int, ...], attributes: Attributes
) -> str | None:
    """Resize, where runtimes have it and compute positions without rounding; None elsewhere.

    They divide by the scale in f32, which is exact where it is a power of two; the nearest of an
    integer scale survives the rounding.
    """
    resized = resized_axes(lengths, attributes["size"])
    mode, rank = attributes["mode"], x.type.rank
    # Cubic interpolation is slower by Resize than by Gathers.
    if x.dtype is not DType.F32 or not resized or rank not in (3, 4) or mode == "cubic":
        return None
    if attributes["align-corners"]:
        return None
    # Between rows that stay as they are, runtimes interpolate too, with a weight of 0: NaN and inf
    # would spread from row to row, and in rank 3 from record to record.
    flat = mode == "linear" and rank == 3
    if mode == "linear" and rank == 4 and len(resized) < 2:
        return None
    scales = np.ones(rank, np.float32)
    for axis, length, size in resized:
        scales[axis] = size / length
        exact = size % length == 0 if mode == "nearest" else math.frexp(size / length)[0] == 0.5
        if axis < 2 or not exact:
            return None
    y = onnx.add(
        "Resize",
        onnx.add("Unsqueeze", x.name, onnx.ints([2])) if flat else x.name,
        "",
        onnx.constant(np.insert(scales, 2, 1) if flat else scales),
        mode=mode,
        coordinate_transformation_mode="asymmetric" if mode == "nearest" else "half_pixel",
        nearest_mode="floor" if mode == "nearest" else None,
    )
    return onnx.add("Squeeze", y, onnx.ints([2])) if flat else y
