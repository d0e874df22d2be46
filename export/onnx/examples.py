"""Inputs to try a model on: random ones, and ones at the edges of what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.bounds import UNLIMITED, index_limits
from sexpgpu.export.graph.graph import Graph, Value
from sexpgpu.export.graph.types import Array, Batch, DType, concrete

#: Calls where records may meet, each by the kinds of its records, what tells most first.
TOGETHER = (("random",), ("random",) * 3, ("zeros",), ("low",), ("high",))

#: The records of one call that tells as much, where it is proved that they do not meet.  Low and
#: high numbers may stand in one record; masks are all false, and all true, of themselves.
APART = ("random", "zeros", "low", "high")
NUMBERS = ("random", "zeros", "ends")
INDICES = ("random", "ends")

#: Ranges of whole numbers of which it is not known what they index, wide ones first.
_RANGES = ((-100, 100), (0, 100), (0, 10), (0, 2), (0, 1))


@dataclass
class Examples:
    """Draws inputs for a graph.

    What whole numbers a model takes is known where they index an axis directly.  Of others wide
    ranges are tried first; `narrow` goes to the next one when the model refuses a number.
    """

    graph: Graph
    level: int = 0

    def __post_init__(self) -> None:
        self._limits = index_limits(self.graph, certain=False)

    def narrow(self) -> bool:
        """Whether there is a narrower range to draw from, which is taken from here on."""
        self.level += 1
        return self.level < len(_RANGES)

    def calls(self, *, apart: bool) -> tuple[tuple[str, ...], ...]:
        """The kinds of each call's records; `apart`: records do not meet, by their first axis."""
        if not apart:
            return TOGETHER
        dtypes = {value.type.dtype for value in self.graph.inputs}
        if DType.BOOL in dtypes:
            return (APART,)
        return (NUMBERS if any(dtype.is_float for dtype in dtypes) else INDICES,)

    def draw(self, kinds: Sequence[str]) -> dict[str, Array]:
        """Every input by name, a record for each of `kinds`: random, zeros, low, high, or ends,
        which are low or high."""
        generator = np.random.default_rng(len(kinds))
        if len({*kinds}) == 1:
            return self._draw_all(kinds[0], len(kinds), generator)
        records = [self._draw_all(kind, 1, generator) for kind in kinds]
        return {name: np.concatenate([record[name] for record in records]) for name in records[0]}

    def _draw_all(self, kind: str, batch: int, generator: np.random.Generator) -> dict[str, Array]:
        return {
            value.name: self._draw(value, kind, batch, generator) for value in self.graph.inputs
        }

    def _draw(self, value: Value, kind: str, batch: int, generator: np.random.Generator) -> Array:
        shape = concrete(value.type.shape, batch)
        dtype = value.type.dtype
        if kind == "ends":
            low, high = (self._draw(value, end, batch, generator) for end in ("low", "high"))
            return np.where(generator.random(shape) < 0.5, low, high)
        if dtype is DType.BOOL:
            if kind == "random":
                return np.asarray(generator.random(shape) < 0.5)
            return np.full(shape, kind == "high")
        if dtype.is_float:
            if kind == "random":
                return np.asarray(generator.standard_normal(shape)).astype(dtype.numpy)
            return np.full(shape, {"zeros": 0.0, "low": -8.0, "high": 8.0}[kind], dtype.numpy)
        least, end = self._range(value, kind, batch)
        if kind == "random":
            return np.asarray(generator.integers(least, end, shape)).astype(dtype.numpy)
        number = {"zeros": np.maximum(0, least), "low": least, "high": end - 1}[kind]
        return np.broadcast_to(number, shape).astype(dtype.numpy)

    def _range(self, value: Value, kind: str, batch: int) -> tuple[Array, Array]:
        """From which number each element of an input may be, and before which."""
        low, high = map(np.array, _RANGES[min(self.level, len(_RANGES) - 1)])
        limits = self._limits.get(value.name)
        if limits is None:
            return low, high
        limits = np.tile(limits, [batch if isinstance(d, Batch) else 1 for d in value.type.shape])
        # Negative indices count from the end; callers seldom mean them.
        least = -limits if kind == "low" and self.level == 0 else np.zeros_like(limits)
        known = limits < UNLIMITED
        return np.where(known, least, low), np.where(known, np.maximum(1, limits), high)
