"""Pooling: the largest element, or the mean, of what a sliding window covers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, NUMBERS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import fail_shape, fail_value, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature
from sexpgpu.export.operations.windows import SAME, VALID, Windows, check_padded, place_windows

#: Up to this size every position of a window is a slice; larger ones are put together from halves.
_SLICED_SIZE = 8
#: Elements of a kernel of ones, one for each channel, that may stand in the file.
_LARGEST_KERNEL = 2**14


class Pooling(Operation):
    """Windows over the spatial axes of [batch, channels, spatial…]."""

    family = "neural"
    constraints = (
        "`x` has a batch axis, a channel axis and one to three spatial axes.",
        "Only the batch axis of `x` may be the batch.",
        "`size` and `stride` are at least 1, one for all spatial axes or one for each; the stride "
        "is the size where it is nil.",
        "`padding` is not negative and less than the size, so that no window lies outside.",
        "The window fits into the padded tensor.",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        (x,) = inputs
        if not 3 <= x.rank <= 5:
            fail_shape(
                f"`{self.name}` takes a tensor [batch, channels, spatial…]",
                came=str(x),
                expected="one to three spatial axes",
            )
        channels = known(self.name, "the channels", x.shape[1])
        windows = self._windows(x, attributes)
        for pair, size in zip(windows.pads, windows.sizes, strict=True):
            if max(pair) >= size:
                fail_value(
                    f"a window of `{self.name}` lies in the padding",
                    came=f"padding {max(pair)} and size {size}",
                    expected="a padding less than the size",
                )
        check_padded(self.name, x, windows)
        return [x.with_shape((x.shape[0], channels, *windows.counts))]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        if axis < 2:
            return [Apart(axis)]
        return [self._windows(inputs[0], attributes).fate(axis - 2)]

    def _windows(self, x: TensorType, attributes: Attributes) -> Windows:
        lengths = [known(self.name, "a spatial axis", d) for d in x.shape[2:]]
        size, stride = attributes["size"], attributes["stride"]
        return place_windows(
            self.name,
            lengths,
            size,
            size if stride is None else stride,
            attributes["padding"],
            ceil=attributes["ceil"],
        )


def _parameters() -> tuple[Attribute, ...]:
    return (
        Attribute("size", Kind.INTEGERS),
        Attribute("stride", Kind.INTEGERS, None),
        Attribute("padding", Kind.PADDING, 0, choices=(SAME, VALID)),
        Attribute("ceil", Kind.BOOLEAN, False),
    )


@operation
class MaxPool(Pooling):
    """The largest element of every window; a NaN in it gives NaN, and the padding does not count.

    `padding` is a number, a number or a pair (before after) for each axis, `:same` or `:valid`.
    With `ceil` a last window may reach past the padding, if it starts before the axis ends.

    ONNX: the strided slices at each position in the window, and their Max, axis by axis, since
    runtimes' MaxPool loses NaN and -inf.  After an activation in f32 that never gives -inf it
    is MaxPool, and NaN where AveragePool is; after relu and sigmoid MaxPool and what is 0 or NaN:
    Relu of the negative sum of each window, by Conv, since convolutions that stand around it have
    a layout of their own, which these keep.
    """

    name = "max-pool"
    signature = signature(Operand("x", NUMBERS), *_parameters())
    example = (
        "(max-pool (tensor (list (list (list 1.0 3.0 2.0 5.0)))) :size 2)",
        "[[[3.0 5.0]]]",
    )

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        (x,) = inputs
        windows = self._windows(_type_of(x), attributes)
        least = _least(DType.of(x))
        covered = _covered(np.pad(x, windows.padded(), constant_values=least), windows)
        return [np.max(covered, axis=tuple(range(x.ndim, covered.ndim)))]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        (x,) = inputs
        windows = self._windows(x.type, attributes)
        if x.bounded_below and x.dtype is DType.F32 and max(windows.sizes) <= _SLICED_SIZE:
            largest = _pool(onnx, "MaxPool", x.name, windows)
            channels = known(self.name, "the channels", x.shape[1])
            if x.never_negative and channels * int(np.prod(windows.sizes)) <= _LARGEST_KERNEL:
                return [onnx.add("Add", largest, _nothing_or_nan(onnx, x.name, channels, windows))]
            mean = _pool(onnx, "AveragePool", x.name, windows)
            return [onnx.add("Where", onnx.add("IsNaN", mean), mean, largest)]
        least = onnx.constant(np.asarray(_least(x.dtype), x.dtype.numpy))
        return [_combine(onnx, "Max", x.name, windows, least)]


@operation
class AveragePool(Pooling):
    """The mean of every window: the sum of what it covers of `x` by the number of those elements.

    `padding` is a number, a number or a pair (before after) for each axis, `:same` or `:valid`.
    With `count-include-pad` the padding counts as zeros.  With `ceil` a last window may reach past
    the padding, if it starts before the axis ends; what lies past the padding never counts.

    ONNX: AveragePool; in f64, for which runtimes have none, the sum of strided slices.
    """

    name = "average-pool"
    signature = signature(
        Operand("x", FLOATS), *_parameters(), Attribute("count-include-pad", Kind.BOOLEAN, False)
    )
    example = (
        "(average-pool (tensor (list (list (list 1.0 3.0 2.0 5.0)))) :size 2)",
        "[[[2.0 3.5]]]",
    )

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        (x,) = inputs
        windows = self._windows(_type_of(x), attributes)
        wide = x.astype(np.result_type(x.dtype, np.float32))
        covered = _covered(np.pad(wide, windows.padded()), windows)
        total = np.sum(covered, axis=tuple(range(x.ndim, covered.ndim)))
        counts = covered_counts(windows, attributes["count-include-pad"]).astype(total.dtype)
        return [(total / counts).astype(x.dtype)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        (x,) = inputs
        windows = self._windows(x.type, attributes)
        include = attributes["count-include-pad"]
        counts = covered_counts(windows, include)
        if x.dtype is DType.F64:
            total = _combine(onnx, "Sum", x.name, windows, onnx.scalar(0, x.dtype))
            return [onnx.add("Div", total, onnx.constant(counts.astype(np.float64)))]
        mean = _pool(onnx, "AveragePool", x.name, windows, include)
        if include and any(windows.extra):
            # ONNX has counted what lies past the padding too.
            size = int(np.prod(windows.sizes))
            mean = onnx.add("Mul", mean, onnx.constant((size / counts).astype(np.float32)))
        return [mean]


def _least(dtype: DType) -> float | int:
    return int(np.iinfo(dtype.numpy).min) if dtype.is_integer else -np.inf


def _covered(padded: Array, windows: Windows) -> Array:
    """[batch, channels, windows…, positions in a window…], a view."""
    axes = tuple(range(2, padded.ndim))
    views = np.lib.stride_tricks.sliding_window_view(padded, windows.sizes, axes)
    steps = tuple(slice(None, None, stride) for stride in windows.strides)
    return views[(slice(None), slice(None), *steps)]


def covered_counts(windows: Windows, include_pad: bool) -> Array:
    """How many elements each window's mean is of: [windows…]."""
    counts = np.ones((), np.int64)
    for axis, (before, after) in enumerate(windows.pads):
        starts = np.arange(windows.counts[axis]) * windows.strides[axis] - before
        first, last = (-before, after) if include_pad else (0, 0)
        ends = np.minimum(starts + windows.sizes[axis], windows.lengths[axis] + last)
        counts = np.multiply.outer(counts, ends - np.maximum(starts, first))
    return counts


def _pool(
    onnx: Lowering, op_type: str, x: str, windows: Windows, include_pad: bool | None = None
) -> str:
    """ONNX's own operator."""
    return onnx.add(
        op_type,
        x,
        kernel_shape=list(windows.sizes),
        strides=list(windows.strides),
        pads=windows.onnx_pads,
        count_include_pad=None if include_pad is None else int(include_pad),
    )


def _nothing_or_nan(onnx: Lowering, x: str, channels: int, windows: Windows) -> str:
    """NaN for a window that holds one, else 0: of numbers that are 0 or more."""
    minus = np.full((channels, 1, *windows.sizes), -1, np.float32)
    sums = onnx.add(
        "Conv",
        x,
        onnx.constant(minus),
        kernel_shape=list(windows.sizes),
        strides=list(windows.strides),
        pads=windows.onnx_pads,
        group=channels,
    )
    return onnx.add("Relu", sums)


def _combine(onnx: Lowering, op_type: str, x: str, windows: Windows, padding: str) -> str:
    """Max or Sum over every window, one spatial axis after the other."""
    spatial = len(windows.lengths)
    if any(windows.onnx_pads):
        begins, ends = windows.onnx_pads[:spatial], windows.onnx_pads[spatial:]
        x = onnx.add("Pad", x, onnx.ints([0, 0, *begins, 0, 0, *ends]), padding)
    for axis in range(spatial):
        x = _combine_axis(onnx, op_type, x, windows, axis)
    return x


def _combine_axis(onnx: Lowering, op_type: str, x: str, windows: Windows, axis: int) -> str:
    size = windows.sizes[axis]

    def cut(name: str, start: int, end: int, step: int = 1) -> str:
        bounds = [onnx.ints([number]) for number in (start, end, 2 + axis, step)]
        return onnx.add("Slice", name, *bounds)

    if size <= _SLICED_SIZE:
        parts = [cut(x, *windows.bounds(axis, at)) for at in range(size)]
        return parts[0] if size == 1 else onnx.add(op_type, *parts)
    # `x` always holds what `width` neighbours give; a window is the widths that its size is the
    # binary number of, side by side.
    before, after = windows.padded()[2 + axis]
    length = windows.lengths[axis] + before + after
    parts, offset, width = [], 0, 1
    while width <= size:
        if size & width:
            parts.append(cut(x, *windows.bounds(axis, offset)))
            offset += width
        if 2 * width <= size:
            x = onnx.add(op_type, cut(x, 0, length - width), cut(x, width, length))
            length -= width
        width *= 2
    return parts[0] if len(parts) == 1 else onnx.add(op_type, *parts)


def _type_of(array: Array) -> TensorType:
    return TensorType(DType.of(array), array.shape)
