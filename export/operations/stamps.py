"""Where the kernel of a transposed convolution lies for each position of an axis."""

from __future__ import annotations

from dataclasses import dataclass

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.operations.operation import WHOLE, Apart, Causal, Fate
from sexpgpu.export.operations.rules import fail_value
from sexpgpu.export.operations.windows import spread, spread_padding


@dataclass(frozen=True, slots=True)
class Stamps:
    """Position i of an axis goes to the positions i·stride − before + k·dilation, k < size.

    Everything is one entry per spatial axis.
    """

    lengths: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    more: tuple[int, ...]

    @property
    def reaches(self) -> tuple[int, ...]:
        """How far a kernel goes past its first position."""
        return tuple(d * (k - 1) for d, k in zip(self.dilations, self.sizes, strict=True))

    @property
    def spans(self) -> tuple[int, ...]:
        """From the first position to the last, with zeros between those that the stride parts."""
        return tuple((n - 1) * s + 1 for n, s in zip(self.lengths, self.strides, strict=True))

    @property
    def counts(self) -> tuple[int, ...]:
        """The lengths of the result."""
        return tuple(
            span + reach + more - before - after
            for span, reach, more, (before, after) in zip(
                self.spans, self.reaches, self.more, self.pads, strict=True
            )
        )

    @property
    def margins(self) -> list[tuple[int, int]]:
        """By how much the spans are longer for a convolution with the turned kernel, or shorter."""
        return [
            (reach - before, reach - after + more)
            for reach, more, (before, after) in zip(self.reaches, self.more, self.pads, strict=True)
        ]

    def fate(self, axis: int) -> Fate:
        """What becomes of a spatial axis, counted from 0; it is axis 2 + `axis` of the tensor."""
        if self.strides[axis] != 1 or self.counts[axis] != self.lengths[axis] or self.pads[axis][0]:
            return WHOLE
        return Causal(2 + axis) if self.reaches[axis] else Apart(2 + axis)


def place_stamps(
    name: str, lengths: tuple[int, ...], sizes: tuple[int, ...], attributes: Attributes
) -> Stamps:
    """Where a kernel lies for each position of axes of given lengths, by `conv-transpose`'s
    attributes."""
    axes = len(lengths)
    strides = spread(name, "stride", attributes["stride"], axes, 1)
    dilations = spread(name, "dilation", attributes["dilation"], axes, 1)
    more = spread(name, "output padding", attributes["output-padding"], axes, 0)
    if any(m >= s for m, s in zip(more, strides, strict=True)):
        fail_value(
            f"the output padding of `{name}` is not less than the stride",
            came=f"{list(more)}, and strides {list(strides)}",
        )
    pads = spread_padding(name, attributes["padding"], lengths, (), ())
    # Steps that are never taken may be huge: no runtime has to multiply by them.
    strides = tuple(s if n > 1 else m + 1 for s, n, m in zip(strides, lengths, more, strict=True))
    dilations = tuple(d if k > 1 else 1 for d, k in zip(dilations, sizes, strict=True))
    return Stamps(lengths, sizes, strides, dilations, pads, more)
