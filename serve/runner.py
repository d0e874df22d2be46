"""Running a batch of calls, so that none of them harms another."""

from __future__ import annotations

from typing import Protocol

from sexpgpu.serve.batch import Batch, Pool
from sexpgpu.serve.checks import CallChecks
from sexpgpu.serve.connection import Connection
from sexpgpu.serve.engine import Engine, RunFailed
from sexpgpu.serve.probe import Plan

NO_MEMORY = "there is no memory for the call"


class Replies(Protocol):
    """Whoever sends what comes of calls."""

    def answer(self, connection: Connection, pieces: list[memoryview], batch: Batch) -> None:
        """Sends an answer, which lies in the batch."""

    def refuse_call(self, connection: Connection, message: str) -> None:
        """Sends an error in an answer's place."""


class Runner:
    """Runs the calls in the rows of a batch, and counts calls and runs."""

    def __init__(self, engine: Engine, plan: Plan, pool: Pool, replies: Replies) -> None:
        self.calls = 0
        self.runs = 0
        self._run = engine.run
        self._find_bad = CallChecks(engine.hosted).bad_calls
        self._size_for = plan.size_for
        self._pool = pool
        self._answer = replies.answer
        self._refuse = replies.refuse_call

    def run(self, batch: Batch, callers: list[Connection]) -> None:
        """Runs the first rows of a batch, one for each caller, and answers them."""
        count = len(callers)
        bad = self._find_bad(batch.buffers, count)
        if bad:
            self._drop(batch, callers, bad)
            count = len(callers)
            if not count:
                return
        size = self._size_for[count]
        for row in range(count, size):
            # What lies there may be what some client has sent of a call that is not complete.
            batch.copy(row, batch.rows[0])
        try:
            self._run(size, batch.buffers)
        except RunFailed as error:
            if count == 1:
                self._refuse(callers[0], str(error))
            else:
                self._run_singly(batch, callers)
            return
        self.runs += 1
        self.calls += count
        answer = self._answer
        for connection, pieces in zip(callers, batch.answers, strict=False):
            answer(connection, pieces, batch)

    def gather(self, callers: list[Connection]) -> None:
        """Runs calls that lie in buffers of their own together."""
        try:
            batch = self._pool.take()
        except MemoryError:
            for connection in callers:
                connection.release_call()
                self._refuse(connection, NO_MEMORY)
            return
        for row, connection in enumerate(callers):
            assert connection.batch is not None
            batch.copy(row, connection.batch.rows[0])
            connection.release_call()
        self.run(batch, callers)
        batch.release()

    def _drop(self, batch: Batch, callers: list[Connection], bad: dict[int, str]) -> None:
        """Refuses the bad calls and moves the others together."""
        good: list[Connection] = []
        for row, connection in enumerate(callers):
            if row in bad:
                self._refuse(connection, bad[row])
                continue
            if row != len(good):
                batch.copy(len(good), batch.rows[row])
            good.append(connection)
        callers[:] = good

    def _run_singly(self, batch: Batch, callers: list[Connection]) -> None:
        """After a batch that failed: each call by itself, so that only the culprit has an error."""
        for row, connection in enumerate(callers):
            try:
                single = self._pool.take()
            except MemoryError:
                self._refuse(connection, NO_MEMORY)
                continue
            single.copy(0, batch.rows[row])
            self.run(single, [connection])
            single.release()
