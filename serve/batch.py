"""Batches of calls: buffers cut into the pieces that calls are received to and sent from."""

from __future__ import annotations

from collections.abc import Sequence

from sexpgpu.serve.engine import Buffers, Engine
from sexpgpu.serve.protocol import HEADER, OK, record_bytes


class Batch:
    """Buffers for some calls, and who uses them.

    `rows[i]` are the pieces that call number i consists of, `slots[i]` the same behind a place for
    the frame's header, and `answers[i]` the pieces of its answer, header and status included.
    `users` counts whoever fills it, runs it, or is sent an answer out of it.
    """

    __slots__ = ("_pool", "answers", "buffers", "rows", "slots", "users")

    def __init__(self, buffers: Buffers, limit: int, pool: Pool) -> None:
        self.buffers = buffers
        self.users = 1
        self._pool = pool
        filled_in = [rows for rows in buffers.inputs if rows.spec.nbytes]
        sent_out = [rows for rows in buffers.outputs if rows.spec.nbytes]
        self.rows = [[rows.row(i) for rows in filled_in] for i in range(limit)]
        self.slots = [[memoryview(pool.header), *row] for row in self.rows]
        self.answers = [[pool.head, *(rows.row(i) for rows in sent_out)] for i in range(limit)]

    def copy(self, row: int, source: Sequence[memoryview]) -> None:
        """Makes a call that lies elsewhere call number `row`."""
        for piece, other in zip(self.rows[row], source, strict=True):
            piece[:] = other

    def release(self) -> None:
        """One user less; without any it is free for others."""
        self.users -= 1
        if not self.users:
            self._pool.give(self)


class Pool:
    """Batches for `limit` calls each, made when none is free; up to `keep` free ones are kept.

    `header` is where the header of a call is received to, the same place for all.
    """

    def __init__(self, engine: Engine, limit: int, keep: int, first: Buffers | None = None) -> None:
        self.header = bytearray(HEADER.size)
        size = 1 + record_bytes(engine.hosted.outputs)
        self.head = memoryview(HEADER.pack(size) + bytes([OK]))
        self._engine = engine
        self._limit = limit
        self._keep = keep
        self._free: list[Batch] = []
        if first is not None:
            self._free.append(Batch(first, limit, self))

    def take(self) -> Batch:
        """A batch with one user.  Raises MemoryError."""
        if self._free:
            batch = self._free.pop()
            batch.users = 1
            return batch
        return Batch(self._engine.new_buffers(self._limit), self._limit, self)

    def give(self, batch: Batch) -> None:
        """Takes back what nobody uses."""
        if len(self._free) < self._keep:
            self._free.append(batch)
