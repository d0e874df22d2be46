"""Convolution over one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import FLOATS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.convolution_form import convolve_by_slices
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, Rows, operation
from sexpgpu.export.operations.products import PRECISION, factor, is_rounded, round_operand
from sexpgpu.export.operations.rules import fail_shape, fail_value, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature
from sexpgpu.export.operations.windows import SAME, VALID, Windows, check_padded, place_windows


@operation
class Conv(Operation):
    """The sum, at every place of a window, of the products of what the window covers and the
    kernel (cross-correlation, as in every deep learning library: the kernel is not flipped).

    `x` is [batch, channels, spatial…], `w` [out, channels / groups, size…], `bias` [out], the
    result [batch, out, spatial…]:

    y[b, o, i] = bias[o] + Σ over c, k of w[o, c, k] · x[b, g·C + c, i·stride − before + k·dilation]

    where group g holds o and C is channels / groups; what lies outside `x` is zero.  `padding` is a
    number, a number or a pair (before after) for each axis, `:same` (⌈length / stride⌉ places, the
    odd one after) or `:valid` (none).  `(list (list n 0))`, n = dilation · (size − 1), is causal.
    Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016.

    ONNX: Conv; in f64, for which runtimes have no Conv, the strided slices of the padded tensor,
    one for each position in the kernel, stacked and multiplied by the kernel, which may have 4,096
    positions.
    """

    name = "conv"
    family = "neural"
    signature = signature(
        Operand("x", FLOATS),
        Operand("w", FLOATS),
        Operand("bias", FLOATS, optional=True, keyword=True),
        Attribute("stride", Kind.INTEGERS, (1,)),
        Attribute("padding", Kind.PADDING, 0, choices=(SAME, VALID)),
        Attribute("dilation", Kind.INTEGERS, (1,)),
        Attribute("groups", Kind.INTEGER, 1),
        PRECISION,
    )
    constraints = (
        "`x` has a batch axis, a channel axis and one to three spatial axes; `w` has its rank.",
        "Only the batch axis of `x` may be the batch.",
        "`groups` is at least 1 and divides the channels of `x` and the first axis of `w`.",
        "The second axis of `w` is the channels of `x` divided by `groups`; no axis of `w` is "
        "empty.",
        "`bias` is [out].",
        "`stride` and `dilation` are at least 1, one for all spatial axes or one for each; "
        "`padding` is not negative.",
        "The kernel, dilated, fits into the padded tensor.",
    )
    example = (
        "(conv (tensor (list (list (list 1.0 2.0 3.0)))) (tensor (list (list (list 1.0 10.0)))))",
        "[[[21.0 32.0]]]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, w = inputs[:2]
        if not 3 <= x.rank <= 5 or w.rank != x.rank:
            fail_shape(
                "`conv` takes a tensor [batch, channels, spatial…] and a kernel of its rank",
                came=f"{x} and {w}",
                expected="one to three spatial axes",
            )
        channels = known(self.name, "the channels", x.shape[1])
        out, share, *_ = (known(self.name, "the kernel's shape", d) for d in w.shape)
        groups = attributes["groups"]
        if groups < 1 or channels % groups or out % groups:
            fail_value(
                "the groups of `conv` do not divide the channels",
                came=f"groups {groups} of {channels} channels, and {out} out",
                expected="a divisor of both",
            )
        if share != channels // groups:
            fail_shape(
                "the kernel of `conv` has another number of channels than the tensor",
                came=f"{w}, for {channels} channels in {groups} groups",
                expected=f"a second axis of {channels // groups}",
            )
        if 0 in w.shape:
            fail_shape("the kernel of `conv` is empty", came=str(w))
        for bias in inputs[2:]:
            if bias.shape != (out,):
                fail_shape("the bias of `conv` does not fit", came=str(bias), expected=f"[{out}]")
        windows = self._windows(inputs, attributes)
        check_padded(self.name, x, windows)
        return [x.with_shape((x.shape[0], out, *windows.counts))]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        given = self.named(inputs, attributes)
        dtype = inputs[0].dtype
        x, w = (factor(given[name], attributes) for name in ("x", "w"))
        windows = self._windows([_type_of(x), _type_of(w)], attributes)
        groups, (batch, channels), out = attributes["groups"], x.shape[:2], w.shape[0]
        padded = np.pad(x, windows.padded()) if any(windows.onnx_pads) else x
        kernels = w.reshape((groups, out // groups, channels // groups, -1))
        # The matrix of a position by itself, as products are quick to read it.
        kernels = np.ascontiguousarray(np.moveaxis(kernels, -1, 0))
        places = int(np.prod(windows.counts))
        y = None
        # Where a group has one channel the matrices are columns and rows: a product without a sum.
        product = np.multiply if channels == groups else np.matmul
        for kernel, offset in zip(kernels, windows.offsets(), strict=True):
            part = padded[windows.slices(offset)].reshape(
                (batch, groups, channels // groups, places)
            )
            made = product(kernel, part)
            y = made if y is None else np.add(y, made, out=y)
        assert y is not None, "a kernel has a position"
        y = y.reshape((batch, out, *windows.counts))
        if "bias" in given:
            y = y + given["bias"].astype(x.dtype).reshape((out, *[1] * len(windows.counts)))
        return [y.astype(dtype, copy=False)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        given = self.named(inputs, attributes)
        windows = self._windows([value.type for value in inputs], attributes)
        if inputs[0].dtype is DType.F64:
            groups = attributes["groups"]
            return [convolve_by_slices(onnx, self.name, given, windows, groups, results[0])]
        operands = [value.name for value in inputs]
        if is_rounded(attributes, DType.F32):
            # Always by rounding: runtimes have no Conv in bf16.
            operands[:2] = [round_operand(onnx, name) for name in operands[:2]]
        return [
            onnx.add(
                "Conv",
                *operands,
                kernel_shape=list(windows.sizes),
                strides=list(windows.strides),
                dilations=list(windows.dilations),
                pads=windows.onnx_pads,
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
        if operand > 0:
            # The first axis of the kernel, and the bias, are the channels of the result.
            return [Apart(1) if axis == 0 else WHOLE]
        if axis == 0:
            return [Apart(0)]
        if axis == 1:
            depthwise = attributes["groups"] == inputs[0].shape[1] == inputs[1].shape[0]
            return [Apart(1) if depthwise else WHOLE]
        return [self._windows(inputs, attributes).fate(axis - 2)]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        # Channels are counted by `groups` and by the kernel.
        return None if rows.axis == 1 else super().restrict(rows, attributes)

    def _windows(self, inputs: Sequence[TensorType], attributes: Attributes) -> Windows:
        x, w = inputs[:2]
        return place_windows(
            self.name,
            [known(self.name, "a spatial axis", d) for d in x.shape[2:]],
            [known(self.name, "the kernel's shape", d) for d in w.shape[2:]],
            attributes["stride"],
            attributes["padding"],
            dilations=attributes["dilation"],
        )


def _type_of(array: Array) -> TensorType:
    return TensorType(DType.of(array), array.shape)
