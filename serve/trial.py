"""Records to try a model with, what it answers to each alone, and batches of them compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.serve.draws import Draws
from sexpgpu.serve.engine import Engine, Rows, RunFailed
from sexpgpu.serve.hosted import Limits
from sexpgpu.serve.protocol import TensorSpec

#: Answers that take more memory together are kept as digests.
_KEPT_BYTES = 1 << 22
_WARM_RUNS = 5
_WARM_SECONDS = 20e-3


class Trial:
    """Runs batches of records in the engine's buffers.

    `alone[i]` is record number i's answer when nothing runs beside it, a row of bytes, and
    `fastest[n]` the least seconds that a batch of n took.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._order = Draws(0)
        self._inputs = [_rows(rows, engine.limit) for rows in engine.buffers.inputs]
        self._outputs = [_rows(rows, engine.limit) for rows in engine.buffers.outputs]
        self._drawn: list[Array] = []
        self.alone = np.zeros((0, 0), np.uint8)
        self.fastest: dict[int, float] = {}
        self._digests = False

    @property
    def count(self) -> int:
        """How many records there are."""
        return len(self.alone)

    def warm_up(self, seconds: float = _WARM_SECONDS) -> float | None:
        """Seconds that a lone run takes, of about so many in all; None where the model does not
        run on random records."""
        self._draw(1)
        taken: list[float] = []
        while len(taken) < _WARM_RUNS and sum(taken) < seconds:
            start = self.engine.clock()
            if self._run(np.zeros(1, np.intp)) is None:
                return None
            taken.append(self.engine.clock() - start)
        return min(taken)

    def prepare(self, count: int) -> None:
        """Draws records and runs each alone; those that the model does not take are left out."""
        size = sum(rows.shape[1] for rows in self._outputs)
        self._digests = size * count > _KEPT_BYTES
        self._draw(count)
        answers = [self._run(np.array([index])) for index in range(count)]
        kept = [index for index, answer in enumerate(answers) if answer is not None]
        self._drawn = [rows[kept] for rows in self._drawn]
        self.alone = np.concatenate([answer for answer in answers if answer is not None])

    def same(self, size: int, batches: int) -> bool:
        """Whether every row of batches of this size is the record's answer alone.

        So many batches are run, or as many as have every record twice: each time beside others.
        """
        batches = min(batches, -(-2 * self.count // size))
        rounds = -(-batches * size // self.count)
        order = [self._order.permutation(self.count) for _ in range(rounds)]
        indices = np.concatenate(order)[: batches * size].reshape(batches, size)
        for batch in indices:
            found = self._run(batch)
            if found is None or not np.array_equal(found, self.alone[batch]):
                return False
        return True

    def same_padded(self, size: int) -> bool:
        """Whether in batches of this size a record's answer is the same in every row.

        `alone` is from now on what a record gives in the first row.
        """
        answers = [self._run(np.full(size, index)) for index in range(self.count)]
        if any(answer is None for answer in answers):
            return False
        self.alone = np.concatenate([answer[:1] for answer in answers if answer is not None])
        for start in range(0, self.count, size):
            chosen = np.resize(np.arange(start, min(start + size, self.count)), size)
            for shift in range(size):
                indices = np.roll(chosen, shift)
                found = self._run(indices)
                if found is None or not np.array_equal(found, self.alone[indices]):
                    return False
        return self.same(size, self.count)

    def seconds(self, size: int) -> float:
        """How long a run of this size takes, at best of two."""
        taken = []
        for _ in range(2):
            start = self.engine.clock()
            self._run(np.zeros(size, np.intp))
            taken.append(self.engine.clock() - start)
        return min(taken)

    def _draw(self, count: int) -> None:
        limits = self.engine.hosted.limits
        self._drawn = []
        for rows in self.engine.buffers.inputs:
            spec = rows.spec
            records = [
                draw_record(spec, limits.get(spec.name), index, Draws(index))
                for index in range(count)
            ]
            self._drawn.append(np.stack(records).view(np.uint8).reshape(count, spec.nbytes))

    def _run(self, indices: Array) -> Array | None:
        """The answers to a batch of records, a row each; None where it does not run."""
        for rows, drawn in zip(self._inputs, self._drawn, strict=True):
            rows[: len(indices)] = drawn[indices]
        size = len(indices)
        start = self.engine.clock()
        try:
            self.engine.run(size)
        except RunFailed:
            return None
        taken = self.engine.clock() - start
        self.fastest[size] = min(taken, self.fastest.get(size, taken))
        answers = [rows[: len(indices)] for rows in self._outputs]
        if not self._digests:
            return np.concatenate(answers, axis=1)
        return np.stack([_digest([rows[row] for rows in answers]) for row in range(len(indices))])


def _rows(rows: Rows, count: int) -> Array:
    """A buffer as bytes, a row for each record."""
    size = rows.spec.nbytes
    return rows.memory[: count * size].reshape(count, size)


def _digest(pieces: list[Array]) -> Array:
    # Few models have answers so large: the others do without OpenSSL, which this loads.
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(np.ascontiguousarray(piece).data)
    return np.frombuffer(digest.digest(), np.uint8)


def draw_record(spec: TensorSpec, limits: Limits | None, index: int, draws: Draws) -> Array:
    """One record of an input, flat: even ones random, odd ones extreme in one way or another."""
    size = int(np.prod(spec.shape))
    dtype = spec.dtype
    kind = _KINDS[index % len(_KINDS)]
    if dtype is DType.BOOL:
        share = 0.5 if index % 2 == 0 else index % 4 / 3
        return np.asarray(draws.uniform(size) < share)
    if dtype.is_integer:
        low, high = (max(0, limits.low), limits.high) if limits else (0, 2)
        if index % 2 == 0 or high <= low:
            return draws.integers(low, max(high, low + 1), size).astype(dtype.numpy)
        return np.full(size, high - 1 if index % 4 == 1 else low, dtype.numpy)
    with np.errstate(all="ignore"):
        return np.asarray(kind(size, draws)).astype(dtype.numpy)


def _plain(size: int, draws: Draws) -> Array:
    return draws.normal(size)


def _wide(size: int, draws: Draws) -> Array:
    return np.asarray(draws.normal(size) * 10)


def _positive(size: int, draws: Draws) -> Array:
    return np.asarray(np.exp(draws.normal(size) * 4))


def _some_special(size: int, draws: Draws) -> Array:
    special = draws.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30], size)
    return np.where(draws.uniform(size) < 0.3, special, draws.normal(size))


_KINDS: list[Callable[[int, Draws], Array]] = [
    _plain,
    lambda size, draws: np.full(size, np.nan),
    _plain,
    lambda size, draws: np.where(draws.uniform(size) < 0.5, -0.0, 0.0),
    _wide,
    _some_special,
    _positive,
    lambda size, draws: draws.normal(size) * 1e30,
    _plain,
    lambda size, draws: np.full(size, np.inf),
    _wide,
    lambda size, draws: draws.normal(size) * 1e-30,
    _positive,
]
