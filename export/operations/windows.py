"""Windows that slide along the spatial axes of a tensor: what convolution and pooling share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sexpgpu.export.graph.types import MAXIMUM_ELEMENTS, TensorType, elements, format_shape
from sexpgpu.export.operations.operation import WHOLE, Apart, Causal, Fate
from sexpgpu.export.operations.rules import fail_shape, fail_value
from sexpgpu.schemas.errors import SexpgpuError

#: The words that stand for a padding.
SAME, VALID = "same", "valid"


@dataclass(frozen=True, slots=True)
class Windows:
    """Window number i of an axis reads its positions i·stride − before + k·dilation, k < size.

    Everything is one entry per spatial axis.  `extra` is how far, under `ceil`, the last window
    reaches past the padding.
    """

    lengths: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    counts: tuple[int, ...]
    extra: tuple[int, ...]

    @property
    def onnx_pads(self) -> list[int]:
        """The padding as ONNX has it: every begin, then every end, those of `ceil` included."""
        ends = [after + extra for (_, after), extra in zip(self.pads, self.extra, strict=True)]
        return [before for before, _ in self.pads] + ends

    def padded(self, value: int = 0) -> list[tuple[int, int]]:
        """What `numpy.pad` takes for a tensor with two axes before the spatial ones."""
        spatial = len(self.lengths)
        pads = self.onnx_pads
        return [(value, value)] * 2 + list(zip(pads[:spatial], pads[spatial:], strict=True))

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """The positions within a window, the last axis fastest."""
        return itertools.product(*(range(size) for size in self.sizes))

    def bounds(self, axis: int, offset: int) -> tuple[int, int, int]:
        """Start, end and step in the padded axis of what all windows have at an offset."""
        start = offset * self.dilations[axis]
        stride = self.strides[axis]
        return start, start + (self.counts[axis] - 1) * stride + 1, stride

    def slices(self, offset: Sequence[int]) -> tuple[slice, ...]:
        """The index into the padded tensor of what all windows have at an offset."""
        return (
            slice(None),
            slice(None),
            *(slice(*self.bounds(axis, at)) for axis, at in enumerate(offset)),
        )

    def fate(self, axis: int) -> Fate:
        """What becomes of a spatial axis, counted from 0; it is axis 2 + `axis` of the tensor."""
        if self.strides[axis] != 1 or self.counts[axis] != self.lengths[axis]:
            return WHOLE
        reach = self.dilations[axis] * (self.sizes[axis] - 1)
        if self.pads[axis] != (reach, 0):
            return WHOLE
        return Causal(2 + axis) if reach else Apart(2 + axis)


def check_padded(name: str, x: TensorType, windows: Windows) -> None:
    """Raises E-SHAPE-003 where the padding makes the tensor too large."""
    spatial = len(windows.lengths)
    pads = windows.padded()[2:]
    lengths = [n + sum(pair) for n, pair in zip(windows.lengths, pads, strict=True)]
    padded = (*x.shape[: x.rank - spatial], *lengths)
    if elements(padded) > MAXIMUM_ELEMENTS:
        raise SexpgpuError(
            "E-SHAPE-003",
            f"the padding of `{name}` makes the tensor too large",
            came=f"{format_shape(x.shape)}, padded to {format_shape(padded)}",
            expected=f"at most {MAXIMUM_ELEMENTS:,} elements for one record",
        )


def spread(name: str, what: str, value: Sequence[int], axes: int, least: int) -> tuple[int, ...]:
    """One whole number per spatial axis; a single one stands for all."""
    numbers = tuple(value) * axes if len(value) == 1 else tuple(value)
    if len(numbers) != axes:
        fail_value(
            f"`{name}` needs one {what} for each spatial axis",
            came=f"{len(numbers)} of them",
            expected=f"{axes}, or one number for all",
        )
    if min(numbers) < least:
        fail_value(
            f"the {what} of `{name}` is too small",
            came=str(list(numbers)),
            expected=f"at least {least}",
        )
    return numbers


def place_windows(
    name: str,
    lengths: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Any,
    *,
    dilations: Sequence[int] = (1,),
    ceil: bool = False,
) -> Windows:
    """The windows along axes of given lengths.

    `padding` is a number, one number or pair (before, after) per axis, "valid" (none) or "same":
    as much as makes ⌈length / stride⌉ windows, the odd one after.  With `ceil` a last window may
    reach past the padding if it starts before the axis ends.
    """
    axes = len(lengths)
    sizes = spread(name, "size", sizes, axes, 1)
    strides = spread(name, "stride", strides, axes, 1)
    dilations = spread(name, "dilation", dilations, axes, 1)
    reaches = [d * (k - 1) + 1 for k, d in zip(sizes, dilations, strict=True)]
    pads = spread_padding(name, padding, lengths, reaches, strides)
    counts, steps, extra = [], [], []
    for length, reach, stride, (before, after) in zip(lengths, reaches, strides, pads, strict=True):
        room = length + before + after - reach
        if room < 0:
            fail_shape(
                f"a window of `{name}` does not fit into the tensor",
                came=f"a window {reach} long on an axis of {length}",
                expected=f"an axis of at least {reach - before - after}",
                help="pad it with `:padding`",
            )
        count = room // stride + 1
        if ceil and room % stride and count * stride < length + before:
            count += 1
        counts.append(count)
        # A stride that is never taken may be huge: no runtime has to multiply by it.
        steps.append(stride if count > 1 else min(stride, room + 1))
        extra.append(max(0, (count - 1) * stride - room))
    dilations = tuple(d if size > 1 else 1 for d, size in zip(dilations, sizes, strict=True))
    return Windows(
        tuple(lengths), sizes, tuple(steps), dilations, pads, tuple(counts), tuple(extra)
    )


def spread_padding(
    name: str, padding: Any, lengths: Sequence[int], reaches: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """A pair (before, after) for each axis; `padding` as `place_windows` takes it."""
    axes = len(lengths)
    if padding == VALID:
        return ((0, 0),) * axes
    if padding == SAME:
        pads = []
        for length, reach, stride in zip(lengths, reaches, strides, strict=True):
            total = max(0, (-(-length // stride) - 1) * stride + reach - length)
            pads.append((total // 2, total - total // 2))
        return tuple(pads)
    entries = padding if isinstance(padding, tuple) else (padding,) * axes
    if len(entries) != axes:
        fail_value(
            f"`{name}` needs one padding for each spatial axis",
            came=f"{len(entries)} of them",
            expected=f"{axes}, each a number or a pair (before after)",
        )
    pairs = tuple(entry if isinstance(entry, tuple) else (entry, entry) for entry in entries)
    if any(number < 0 for pair in pairs for number in pair):
        fail_value(
            f"the padding of `{name}` is negative", came=str(padding), help="cut with `slice`"
        )
    return pairs
