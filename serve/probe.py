"""The probe at start: which batch sizes give every record the bits that it has alone.

It is also the warm-up.  Each size is run over random and extreme records, every row having
neighbours of the other kind, and each row is compared with the same record's run alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.serve.engine import Engine, RunFailed
from sexpgpu.serve.hosted import Limits
from sexpgpu.serve.protocol import TensorSpec

#: How often a size is run over other records.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """Which size to run for so many waiting calls: `size_for[n]`, for n up to `limit`.

    `padded` says that every run has one fixed size, since no smaller one has the bits of a call
    alone; `refused` are the sizes that were tried and not taken.
    """

    limit: int
    size_for: tuple[int, ...]
    padded: bool = False
    refused: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that are run, ascending."""
        return tuple(sorted(set(self.size_for[1:])))

    def describe(self) -> str:
        """In a line, for a person."""
        if self.limit == 1:
            return "one call at a time"
        if self.padded:
            return f"every run padded to {self.limit}, which has the same bits for any neighbours"
        shown = _ranges(self.sizes)
        if self.refused:
            return f"sizes {shown}; not {_ranges(self.refused)}, whose bits differ"
        return f"sizes {shown}, each with the bits of a call alone"


def probe(engine: Engine, candidates: list[int]) -> Plan:
    """Tries the batch sizes.  `candidates` are ascending, from 1 to the engine's limit."""
    pool = _Pool(engine, 2 * max(candidates) + 1)
    alone = [pool.alone(index, 1) for index in range(pool.count)]
    good = [1] + [size for size in candidates if size > 1 and pool.same(size, alone)]
    refused = tuple(size for size in candidates if size not in good)
    if len(good) == 1 and len(candidates) > 1:
        for size in reversed(candidates[1:]):
            fixed = [pool.alone(index, size) for index in range(pool.count)]
            if pool.same(size, fixed):
                return Plan(size, (0, *[size] * size), True, refused)
    limit = good[-1]
    chosen = [0, *(next(size for size in good if size >= n) for n in range(1, limit + 1))]
    return Plan(limit, tuple(chosen), False, refused)


class _Pool:
    """Records to run, and their outputs as bytes."""

    def __init__(self, engine: Engine, count: int) -> None:
        self.engine = engine
        self.count = count
        generator = np.random.default_rng(0)
        limits = engine.hosted.limits
        self.records = [
            [
                _record(spec, limits.get(spec.name), index, generator)
                for spec in engine.hosted.inputs
            ]
            for index in range(count)
        ]

    def run(self, indices: list[int]) -> list[bytes] | None:
        """The outputs of a batch of records, a row each; None where it does not run."""
        buffers = self.engine.buffers
        for row, index in enumerate(indices):
            for rows, record in zip(buffers.inputs, self.records[index], strict=True):
                rows.row(row)[:] = record
        try:
            self.engine.run(len(indices))
        except RunFailed:
            return None
        return [
            b"".join([bytes(rows.row(row)) for rows in buffers.outputs])
            for row in range(len(indices))
        ]

    def alone(self, index: int, size: int) -> bytes | None:
        """A record's outputs in a batch of one, or padded to `size` with the first record."""
        found = self.run([index, *[0] * (size - 1)])
        return None if found is None else found[0]

    def same(self, size: int, expected: list[bytes | None]) -> bool:
        """Whether every row of batches of this size has the bits expected of its record."""
        for round_number in range(_ROUNDS):
            # Steps of another length each round: every row meets other records and neighbours.
            indices = [
                (round_number * 7 + row * (round_number + 1)) % self.count for row in range(size)
            ]
            found = self.run(indices)
            if found is None or any(
                row != expected[index] for row, index in zip(found, indices, strict=True)
            ):
                return False
        return True


def _record(
    spec: TensorSpec, limits: Limits | None, index: int, generator: np.random.Generator
) -> bytes:
    """The bytes of one record of an input: even ones random, odd ones extreme in turn."""
    size = int(np.prod(spec.shape))
    dtype = spec.dtype
    if dtype is DType.BOOL:
        return (generator.random(size) < (0.5 if index % 2 == 0 else index % 3 / 2)).tobytes()
    if dtype.is_integer:
        low, high = (max(0, limits.low), limits.high) if limits else (0, 2)
        if index % 2 == 0 or high <= low:
            return generator.integers(low, max(high, low + 1), size).astype(dtype.numpy).tobytes()
        return np.full(size, high - 1 if index % 4 == 1 else low, dtype.numpy).tobytes()
    if index % 2 == 0:
        return generator.standard_normal(size).astype(dtype.numpy).tobytes()
    with np.errstate(all="ignore"):
        return _EXTREMES[index // 2 % len(_EXTREMES)](size, generator).astype(dtype.numpy).tobytes()


_EXTREMES: list[Callable[[int, np.random.Generator], Array]] = [
    lambda size, g: np.zeros(size),
    lambda size, g: np.full(size, np.nan),
    lambda size, g: np.full(size, np.inf),
    lambda size, g: g.standard_normal(size) * 1e30,
    lambda size, g: np.where(np.arange(size) % 2, -1e-30, 1e-30),
    lambda size, g: np.where(g.random(size) < 0.1, -np.inf, g.standard_normal(size)),
]


def _ranges(sizes: tuple[int, ...]) -> str:
    """`1 to 4, 8`"""
    parts: list[list[int]] = []
    for size in sizes:
        if parts and parts[-1][-1] == size - 1:
            parts[-1].append(size)
        else:
            parts.append([size])
    return ", ".join(f"{p[0]} to {p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
