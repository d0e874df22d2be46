"""Transposed convolution over one, two or three spatial axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import FLOATS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.convolution_form import convolve_by_slices
from sexpgpu.export.operations.operation import (
    WHOLE,
    Apart,
    Fate,
    Operation,
    Rows,
    operation,
)
from sexpgpu.export.operations.products import PRECISION, factor, is_rounded, round_operand
from sexpgpu.export.operations.rules import fail_shape, fail_value, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature
from sexpgpu.export.operations.stamps import Stamps, place_stamps
from sexpgpu.export.operations.windows import place_windows

#: ONNX's Slice reads this as before the first position.
_BEFORE_FIRST = -(2**63) + 1


@operation
class ConvTranspose(Operation):
    """Each element of a tensor times the kernel, added up where the kernels lie: what a `conv`
    does to gradients, and how a network makes an axis longer.

    `x` is [batch, channels, spatial…], `w` [channels, out / groups, size…], `bias` [out], the
    result [batch, out, spatial…]:

    y[b, o, j] = bias[o] + Σ of w[c, o, k] · x[b, c, i] over c of o's group, and over i and k where
    j = i·stride − before + k·dilation

    `padding` is a number, or a number or a pair (before after) for each axis, of positions that are
    cut off; `output-padding` are positions more at the end.  An axis becomes (n − 1)·stride −
    before − after + dilation·(size − 1) + output-padding + 1 long.  As torch's; `w` is not flipped.

    ONNX: ConvTranspose; in f64, for which runtimes have none, the form of `conv` on the tensor with
    zeros between its elements.
    """

    name = "conv-transpose"
    family = "neural"
    signature = signature(
        Operand("x", FLOATS),
        Operand("w", FLOATS),
        Operand("bias", FLOATS, optional=True, keyword=True),
        Attribute("stride", Kind.INTEGERS, (1,)),
        Attribute("padding", Kind.PADDING, 0),
        Attribute("output-padding", Kind.INTEGERS, (0,)),
        Attribute("dilation", Kind.INTEGERS, (1,)),
        Attribute("groups", Kind.INTEGER, 1),
        PRECISION,
    )
    constraints = (
        "`x` has a batch axis, a channel axis and one to three spatial axes, of a position or "
        "more; `w` has its rank.",
        "Only the batch axis of `x` may be the batch.",
        "`groups` is at least 1 and divides the channels of `x`.",
        "The first axis of `w` is the channels of `x`; no axis of `w` is empty.",
        "`bias` is [out].",
        "`stride` and `dilation` are at least 1, one for all spatial axes or one for each; "
        "`padding` is not negative; `output-padding` is at least 0 and less than the stride.",
        "The padding leaves a position.",
    )
    example = (
        "(conv-transpose (tensor (list (list (list 1.0 2.0)))) (tensor (list (list (list 1.0 "
        "10.0))))\n                :stride 2)",
        "[[[1.0 10.0 2.0 20.0]]]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, w = inputs[:2]
        if not 3 <= x.rank <= 5 or w.rank != x.rank:
            fail_shape(
                "`conv-transpose` takes a tensor [batch, channels, spatial…] and a kernel of its "
                "rank",
                came=f"{x} and {w}",
                expected="one to three spatial axes",
            )
        channels = known(self.name, "the channels", x.shape[1])
        own, share, *_ = (known(self.name, "the kernel's shape", d) for d in w.shape)
        groups = attributes["groups"]
        if groups < 1 or channels % groups:
            fail_value(
                "the groups of `conv-transpose` do not divide the channels",
                came=f"groups {groups} of {channels} channels",
                expected="a divisor of them",
            )
        if own != channels:
            fail_shape(
                "the kernel of `conv-transpose` has another number of channels than the tensor",
                came=f"{w}, for {channels} channels",
                expected=f"a first axis of {channels}",
            )
        if 0 in w.shape or 0 in x.shape[2:]:
            fail_shape("`conv-transpose` is given an empty axis", came=f"{x} and {w}")
        out = share * groups
        for bias in inputs[2:]:
            if bias.shape != (out,):
                fail_shape(
                    "the bias of `conv-transpose` does not fit",
                    came=str(bias),
                    expected=f"[{out}]",
                )
        counts = self._stamps(inputs, attributes).counts
        if min(counts) < 1:
            fail_shape(
                "the padding of `conv-transpose` leaves nothing",
                came=f"an axis that would be {min(counts)} long",
                expected="a smaller `:padding`, which is cut off",
            )
        return [x.with_shape((x.shape[0], out, *counts))]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        given = self.named(inputs, attributes)
        x, w = (factor(given[name], attributes) for name in ("x", "w"))
        stamps = self._stamps([_type_of(x), _type_of(w)], attributes)
        groups, (batch, channels), share = attributes["groups"], x.shape[:2], w.shape[1]
        grouped = x.reshape((batch, groups, channels // groups, -1))
        kernels = w.reshape((groups, channels // groups, share, -1)).swapaxes(1, 2)
        lengths = [
            n + r + m for n, r, m in zip(stamps.spans, stamps.reaches, stamps.more, strict=True)
        ]
        whole = np.zeros((batch, groups * share, *lengths), x.dtype)
        for number, offset in enumerate(itertools.product(*map(range, stamps.sizes))):
            part = (kernels[..., number] @ grouped).reshape(
                (batch, groups * share, *stamps.lengths)
            )
            starts = [k * d for k, d in zip(offset, stamps.dilations, strict=True)]
            places = (
                slice(start, start + span, stride)
                for start, span, stride in zip(starts, stamps.spans, stamps.strides, strict=True)
            )
            whole[(slice(None), slice(None), *places)] += part
        kept = (
            slice(before, before + n)
            for (before, _), n in zip(stamps.pads, stamps.counts, strict=True)
        )
        y = whole[(slice(None), slice(None), *kept)]
        if "bias" in given:
            y = y + given["bias"].astype(x.dtype).reshape((-1, *[1] * len(stamps.counts)))
        return [y.astype(inputs[0].dtype)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        stamps = self._stamps([value.type for value in inputs], attributes)
        if inputs[0].dtype is DType.F64:
            given = self.named(inputs, attributes)
            given["x"] = _stuffed(onnx, given["x"], stamps)
            given["w"] = _turned(onnx, given["w"], attributes["groups"])
            lengths = [known(self.name, "a spatial axis", d) for d in given["x"].shape[2:]]
            windows = place_windows(
                self.name, lengths, stamps.sizes, (1,), 0, dilations=stamps.dilations
            )
            groups = attributes["groups"]
            return [convolve_by_slices(onnx, self.name, given, windows, groups, results[0])]
        operands = [value.name for value in inputs]
        if is_rounded(attributes, DType.F32):
            operands[:2] = [round_operand(onnx, name) for name in operands[:2]]
        return [
            onnx.add(
                "ConvTranspose",
                *operands,
                kernel_shape=list(stamps.sizes),
                strides=list(stamps.strides),
                dilations=list(stamps.dilations),
                pads=[before for before, _ in stamps.pads] + [after for _, after in stamps.pads],
                output_padding=list(stamps.more),
                group=attributes["groups"],
            )
        ]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        groups = attributes["groups"]
        depthwise = groups == inputs[0].shape[1] and inputs[1].shape[1] == 1
        if operand == 2:
            return [Apart(1)]
        if operand == 1:
            # Its second axis is the channels of the result, where there is one group.
            return [Apart(1) if (axis == 0 and depthwise) or (axis == 1 and groups == 1) else WHOLE]
        if axis == 0:
            return [Apart(0)]
        if axis == 1:
            return [Apart(1) if depthwise else WHOLE]
        return [self._stamps(inputs, attributes).fate(axis - 2)]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        # Channels are counted by `groups` and by the kernel.
        return None if rows.axis == 1 else super().restrict(rows, attributes)

    def _stamps(self, inputs: Sequence[TensorType], attributes: Attributes) -> Stamps:
        lengths, sizes = (
            tuple(known(self.name, "a spatial axis", d) for d in type.shape[2:])
            for type in inputs[:2]
        )
        return place_stamps(self.name, lengths, sizes, attributes)


def _stuffed(onnx: Lowering, x: OnnxValue, stamps: Stamps) -> OnnxValue:
    """x with zeros between the positions that the stride parts, and margins around."""
    batch, channels = x.shape[:2]
    name = x.name
    if any(stride > 1 for stride in stamps.strides):
        ones = [d for n in stamps.lengths for d in (n, 1)]
        apart = [d for n, s in zip(stamps.lengths, stamps.strides, strict=True) for d in (n, s)]
        after = [b - a for a, b in zip(ones, apart, strict=True)]
        name = onnx.reshape(name, (batch, channels, *ones))
        name = onnx.add("Pad", name, onnx.ints([*[0] * (4 + len(ones)), *after]))
        joined = (n * s for n, s in zip(stamps.lengths, stamps.strides, strict=True))
        name = onnx.reshape(name, (batch, channels, *joined))
    # From n·stride to (n - 1)·stride + 1 at the end, and by the margins on both sides.
    begins = [before for before, _ in stamps.margins]
    ends = [
        after - (stride - 1)
        for (_, after), stride in zip(stamps.margins, stamps.strides, strict=True)
    ]
    grown = [0, 0, *(max(n, 0) for n in begins), 0, 0, *(max(n, 0) for n in ends)]
    if any(grown):
        name = onnx.add("Pad", name, onnx.ints(grown))
    lengths = [
        n * s + before + after
        for n, s, before, after in zip(stamps.lengths, stamps.strides, begins, ends, strict=True)
    ]
    if min(begins) < 0 or min(ends) < 0:
        starts = [max(-before, 0) for before in begins]
        stops = [start + n for start, n in zip(starts, lengths, strict=True)]
        axes = range(2, 2 + len(lengths))
        name = onnx.add("Slice", name, *(onnx.ints(n) for n in (starts, stops, axes)))
    return OnnxValue(name, x.type.with_shape((batch, channels, *lengths)))


def _turned(onnx: Lowering, w: OnnxValue, groups: int) -> OnnxValue:
    """The kernel of the `conv` that does the same: [out, channels / groups, size…], flipped."""
    channels, share, *sizes = (known("conv-transpose", "the kernel's shape", d) for d in w.shape)
    spatial = range(2, w.type.rank)
    name = onnx.reshape(w.name, (groups, channels // groups, share, *sizes))
    name = onnx.add("Transpose", name, perm=[0, 2, 1, *(axis + 1 for axis in spatial)])
    shape = (groups * share, channels // groups, *sizes)
    name = onnx.reshape(name, shape)
    if any(size > 1 for size in sizes):
        bounds = ([-1] * len(sizes), [_BEFORE_FIRST] * len(sizes), spatial, [-1] * len(sizes))
        name = onnx.add("Slice", name, *(onnx.ints(n) for n in bounds))
    return OnnxValue(name, w.type.with_shape(shape))


def _type_of(array: Array) -> TensorType:
    return TensorType(DType.of(array), array.shape)
