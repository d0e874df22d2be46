"""A measure over the steps of a run, as it is drawn: smoothed, thinned out, and its range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sexpgpu.tools.train.record import Record

Floats: TypeAlias = NDArray[np.float64]

_WINDOWS = 40
"""A smooth curve shows about so many turns."""
_POINTS_MOST = 2000
_LARGEST = 1e100
_LEAST_SPAN = 20.0
_MOST_SPAN = 1e30
_CROWDED = 0.15


@dataclass(frozen=True, slots=True)
class Series:
    """Values by step; of those that are not finite, or could as well not be, only the steps."""

    steps: Floats
    values: Floats
    gaps: Floats

    @classmethod
    def of(cls, records: Iterable[Record], kind: str, name: str) -> Series:
        """What records of a kind say under a name."""
        found = [(r.step, r.values[name]) for r in records if r.kind == kind and name in r.values]
        steps, values = np.asarray(found, np.float64).reshape(-1, 2).T
        shown = np.abs(values) < _LARGEST
        return cls(steps[shown], values[shown], steps[~shown])

    def __len__(self) -> int:
        return len(self.steps)

    def smoothed(self) -> Series:
        """At each value the line that fits those around it best.

        Where as many are on either side that is their mean; at the ends a mean would be behind.
        """
        count = len(self)
        half = count // (2 * _WINDOWS)
        if half == 0:
            return self
        at = np.arange(count)
        size = 2 * half + 1
        first = np.clip(at - half, 0, count - size)
        end, middle = first + size, first + half
        # Sums of what is near zero keep their digits.
        typical = float(np.median(self.values))
        values, times = self.values - typical, at - count / 2
        mean = _sums(values, first, end) / size
        product = _sums(values * times, first, end) / size
        slope = (product - mean * (middle - count / 2)) / ((size**2 - 1) / 12)
        return Series(self.steps, mean + slope * (at - middle) + typical, self.gaps)

    def thinned(self) -> Series:
        """As it is drawn: of a long series the lowest and the highest of neighbouring values."""
        if len(self) <= 2 * _POINTS_MOST:
            return self
        starts = np.linspace(0, len(self), _POINTS_MOST, endpoint=False).astype(int)
        lowest = np.minimum.reduceat(self.values, starts)
        highest = np.maximum.reduceat(self.values, starts)
        values = np.stack([lowest, highest], axis=1).ravel()
        return Series(np.repeat(self.steps[starts], 2), values, self.gaps)

    def bulk(self) -> Floats:
        """Its values without the few that stand far out."""
        if len(self) < 20:
            return self.values
        low, high = np.quantile(self.values, [0.005, 0.995])
        return np.clip(self.values, low, high)


def _sums(values: Floats, first: NDArray[np.int_], end: NDArray[np.int_]) -> Floats:
    """The sums of the values from each `first` to before its `end`."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    differences: Floats = sums[end] - sums[first]
    return differences


@dataclass(frozen=True, slots=True)
class Scale:
    """The part of an axis that is shown, and whether it is logarithmic."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def over(cls, *values: Floats, logarithmic: bool | None = None) -> Scale:
        """A scale over all the values.

        It is logarithmic, unless said, where the values span decades, and most of them would be
        crowded at the bottom of another.
        """
        every = np.concatenate(values)
        if not len(every):
            return cls(0.0, 1.0, False)
        low, high = float(np.min(every)), float(np.max(every))
        if logarithmic is None:
            crowded = float(np.median(every)) < low + (high - low) * _CROWDED
            logarithmic = low > 0 and high / low > _LEAST_SPAN and crowded
        if logarithmic:
            low = max(low, high / _MOST_SPAN)
            room = (high / low) ** 0.05
            return cls(low / room, high * room, True)
        room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
        return cls(low - room, high + room, False)
