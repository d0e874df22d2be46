"""Random numbers for the probe, the same every time.

NumPy's generators would do, but loading them takes a server 12 ms and 6 MB, of its start and for as
long as it runs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.types import Array


class Draws:
    """Numbers drawn one after another, determined by the seed."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)

    def uniform(self, size: int) -> Array:
        """f64 from 0 up to and without 1."""
        words = np.frombuffer(self._source.randbytes(8 * size), np.uint64)
        return (words >> np.uint64(11)) * 2.0**-53

    def normal(self, size: int) -> Array:
        """f64 of the standard normal distribution (Box and Muller 1958)."""
        radius = np.sqrt(-2 * np.log1p(-self.uniform(size)))
        return np.asarray(radius * np.cos(2 * math.pi * self.uniform(size)))

    def integers(self, low: int, high: int, size: int) -> Array:
        """i64 from `low` up to and without `high`, at most 2^53 of them."""
        return low + (self.uniform(size) * (high - low)).astype(np.int64)

    def choice(self, values: Sequence[float], size: int) -> Array:
        """f64, each one of the values."""
        return np.asarray(values)[self.integers(0, len(values), size)]

    def permutation(self, count: int) -> Array:
        """The numbers below `count` in some order."""
        return np.argsort(self.uniform(count))
