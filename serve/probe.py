"""The probe at start: which batch sizes give every record the bits that it has alone.

It is also the warm-up.  Each size is run over random and extreme records, every row having
neighbours of the other kind, and each row is compared with the same record's run alone.  How many
sizes are tried, and how often, depends on what a run costs: a model of 100 ms is not probed for a
minute before it answers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.serve.engine import Engine, RunFailed
from sexpgpu.serve.hosted import Limits
from sexpgpu.serve.protocol import TensorSpec

#: Seconds in which every size is tried three times; a model that takes longer is tried less often.
_THOROUGH = 0.1
_BRIEF = 0.5
#: A run of one fixed size is worth its padding where it takes at most so many lone runs.
_PADDING_COST = 2.0


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


def probe(engine: Engine) -> Plan:
    """Tries batch sizes up to the engine's limit."""
    pool = _Pool(engine)
    if engine.limit == 1:
        return Plan(1, (0, 1))
    sizes = candidate_sizes(engine.limit, pool.seconds)
    cost = pool.seconds * sum(sizes)
    rounds = 3 if cost < _THOROUGH else 2 if cost < _BRIEF else 1
    good = [1] + [size for size in sizes if pool.same(size, rounds, pool.alone)]
    refused = tuple(size for size in sizes if size not in good)
    if len(good) == 1:
        for size in reversed(sizes):
            fixed = pool.padded(size)
            if pool.seconds_of(size) <= _PADDING_COST * pool.seconds and pool.same(
                size, rounds, fixed
            ):
                return Plan(size, (0, *[size] * size), True, refused)
    limit = good[-1]
    chosen = [0, *(next(size for size in good if size >= n) for n in range(1, limit + 1))]
    return Plan(limit, tuple(chosen), False, refused)


def candidate_sizes(limit: int, seconds: float) -> list[int]:
    """The sizes from 2 that are tried: all up to 16 where a lone run is quick, else doublings."""
    sizes = {2**power for power in range(1, 13)}
    if seconds < 1e-3:
        sizes |= set(range(2, 17)) | set(range(24, 65, 8))
    return sorted({size for size in sizes if size < limit} | {limit})


class _Pool:
    """Records to run, the digests of their outputs alone, and how long a lone run takes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seconds = 0.0
        generator = np.random.default_rng(0)
        limits = engine.hosted.limits
        self.records: list[list[bytes]] = []
        self.alone: list[bytes] = []
        for index in range(_RECORDS):
            if index >= _LEAST_RECORDS and self.seconds * index > _THOROUGH:
                break
            record = [
                _record(spec, limits.get(spec.name), index, generator)
                for spec in engine.hosted.inputs
            ]
            self.records.append(record)
            start = time.perf_counter()
            found = self.run([len(self.records) - 1])
            self.seconds = time.perf_counter() - start
            if found is None:
                # The model does not take it; nothing can be compared.
                self.records.pop()
            else:
                self.alone.append(found[0])

    def run(self, indices: list[int]) -> list[bytes] | None:
        """Digests of the outputs of a batch of records, a row each; None where it does not run."""
        buffers = self.engine.buffers
        for row, index in enumerate(indices):
            for rows, record in zip(buffers.inputs, self.records[index], strict=True):
                rows.row(row)[:] = record
        try:
            self.engine.run(len(indices))
        except RunFailed:
            return None
        return [_digest([rows.row(row) for rows in buffers.outputs]) for row in range(len(indices))]

    def padded(self, size: int) -> list[bytes]:
        """Each record's digest when the rest of a batch of this size is the first record."""
        found = [self.run([index, *[0] * (size - 1)]) for index in range(len(self.records))]
        return [rows[0] if rows else b"" for rows in found]

    def seconds_of(self, size: int) -> float:
        """How long a run of this size takes."""
        start = time.perf_counter()
        self.run([0] * size)
        return time.perf_counter() - start

    def same(self, size: int, rounds: int, expected: list[bytes]) -> bool:
        """Whether every row of batches of this size has the bits expected of its record."""
        count = len(self.records)
        if not count:
            return False
        for number in range(rounds):
            # Steps of another length each round: every row meets other records and neighbours.
            indices = [(number * 7 + row * (number + 1)) % count for row in range(size)]
            found = self.run(indices)
            if found != [expected[index] for index in indices]:
                return False
        return True


#: Random and extreme records in turn; an odd number, so that steps meet both kinds.
_RECORDS = 13
_LEAST_RECORDS = 5


def _digest(pieces: list[memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


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
