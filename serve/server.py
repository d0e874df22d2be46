"""The server: one thread that waits on every client at once and runs what has come together.

A call is received straight into the next free row of the input buffers, and answered straight from
the output buffers.  When nothing more is ready, or the rows are full, the rows that have come are
run as one batch: a call that arrives alone runs at once, and while the device is busy the next
batch gathers in the sockets.  There is no timer.

A large call is received into buffers of its own, so that a slow client holds no row; alone, it is
run where it lies.  The buffers of a large answer stay with it until its client has read it.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

from sexpgpu.serve.batch import Batch, Pool
from sexpgpu.serve.checks import CallChecks
from sexpgpu.serve.connection import Connection
from sexpgpu.serve.engine import Engine, RunFailed
from sexpgpu.serve.probe import Plan
from sexpgpu.serve.protocol import HEADER, PIECES, error_frame, record_bytes
from sexpgpu.serve.stopping import finish

#: Larger calls are received into buffers of their own.
_IN_PLACE_LIMIT = 1 << 18
#: The rest of a larger answer is sent from where it lies, of a smaller one from a copy.
_COPY_LIMIT = 1 << 18

_READ = select.EPOLLIN | select.EPOLLRDHUP
_WRITE = select.EPOLLOUT


class Server:
    """Serves clients of a listening socket until `stop` is called.

    `wake` is a file descriptor that becomes readable when it should look whether to stop.
    """

    def __init__(
        self, engine: Engine, plan: Plan, greeting: bytes, listener: socket.socket, wake: int
    ) -> None:
        self.engine = engine
        self.plan = plan
        self.calls = 0
        self.runs = 0
        self.log: Callable[[str, dict[str, object]], None] | None = None
        self.connections: dict[int, Connection] = {}
        self.waiting: list[Connection] = []
        self.call_size = record_bytes(engine.hosted.inputs)
        self._greeting = memoryview(greeting)
        self._listener = listener
        self._wake = wake
        self._stopping = False
        self._full = False
        self._checks = CallChecks(engine.hosted)
        self._frame_size = HEADER.size + self.call_size
        self._expected = HEADER.pack(self.call_size)
        self._answer_size = HEADER.size + 1 + record_bytes(engine.hosted.outputs)
        self._copies_rest = self._answer_size <= _COPY_LIMIT
        self._pool = Pool(engine, plan.limit, 1, engine.buffers)
        self._header = self._pool.header
        self._lone = plan.size_for[1] == 1
        self._singles = Pool(engine, 1, plan.limit) if plan.limit > 1 else self._pool
        small = self.call_size <= _IN_PLACE_LIMIT and len(engine.hosted.inputs) < PIECES
        self._batch = self._pool.take() if small else None
        self._slots = self._batch.slots if self._batch else []
        self.epoll = select.epoll()

    def stop(self) -> None:
        """Answers the calls that have arrived, and then returns from `serve`."""
        self._stopping = True

    def serve(self) -> None:
        """Runs until it is stopped."""
        self.epoll.register(self._listener, select.EPOLLIN)
        self.epoll.register(self._wake, select.EPOLLIN)
        while not self._stopping:
            self.turn(_FULL_SECONDS if self._full else None)
        self.epoll.unregister(self._wake)
        if not self._full:
            self.epoll.unregister(self._listener)
        self._full = False
        self._listener.close()
        finish(self)
        self.epoll.close()

    def turn(self, seconds: float | None) -> bool:
        """Waits until something is ready, takes it in and runs it; false when nothing was."""
        events = self.epoll.poll(seconds)
        find, limit = self.connections.get, self.plan.limit
        for fd, event in events:
            connection = find(fd)
            if connection is not None:
                self._handle(connection, event)
                if len(self.waiting) == limit:
                    self._run()
            elif fd == self._listener.fileno():
                self._accept()
        if self.waiting:
            self._run()
        if self._full:
            self._full = False
            self.epoll.register(self._listener, select.EPOLLIN)
        return bool(events)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Out of file descriptors: those who wait in the queue are taken when one is free.
                self._note("refused", reason=error.strerror or str(error))
                self.epoll.unregister(self._listener)
                self._full = True
                return
            sock.setblocking(False)
            connection = Connection(sock, self.call_size)
            self.connections[connection.fd] = connection
            self.epoll.register(connection.fd, _READ)
            self._send(connection, [self._greeting], len(self._greeting))

    def _handle(self, connection: Connection, events: int) -> None:
        if connection.waiting:
            # It hung up while its call waits; the answer's sending will find out.
            return
        if connection.outgoing:
            if not connection.flush():
                self.close(connection)
            elif not connection.outgoing:
                if connection.closing:
                    connection.finish()
                self.epoll.modify(connection.fd, _READ)
        elif connection.closing:
            if not connection.discard():
                self.close(connection)
        elif events != _WRITE:
            self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        """Takes in what has come: a whole call into the next row, most of the time."""
        row = len(self.waiting)
        batch = self._batch
        if batch is not None and not connection.received:
            slot = self._slots[row]
            try:
                count = os.readv(connection.fd, slot)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if count == self._frame_size and self._header == self._expected:
                connection.waiting = True
                self.waiting.append(connection)
                return
            if count == 0:
                self.close(connection)
                return
            if count >= HEADER.size and self._header != self._expected:
                self._refuse(connection, connection.wrong_length(self._header) or "")
                return
            connection.begin(slot, count)
        outcome = connection.receive(self._find_place)
        if outcome == "call":
            if batch is not None:
                self._place(connection, batch, row)
            connection.waiting = True
            self.waiting.append(connection)
        elif outcome == "closed":
            self.close(connection)
        elif outcome is not None:
            self._refuse(connection, outcome)

    def _find_place(self, connection: Connection) -> list[memoryview]:
        """Where a call that comes in pieces is received to."""
        if self._batch is not None:
            return connection.keep_record()
        connection.batch = self._singles.take()
        return connection.batch.rows[0]

    def _place(self, connection: Connection, batch: Batch, row: int) -> None:
        """Puts a small call that came in pieces into the next row."""
        record = connection.record
        place = 0
        for piece in batch.rows[row]:
            assert record is not None
            piece[:] = record[place : place + len(piece)]
            place += len(piece)
        connection.record = None

    def _run(self) -> None:
        """Runs the calls that wait as one batch, and answers them."""
        callers = self.waiting
        self.waiting = []
        if self._batch is not None:
            if self._batch.users > 1:
                self._renew(self._batch, len(callers))
            self._run_batch(self._batch, callers)
        elif len(callers) == 1 and self._lone:
            batch, callers[0].batch = callers[0].batch, None
            assert batch is not None
            self._run_batch(batch, callers)
            batch.release()
        else:
            self._gather(callers)

    def _gather(self, callers: list[Connection]) -> None:
        """Runs large calls together."""
        try:
            batch = self._pool.take()
        except MemoryError:
            for connection in callers:
                connection.release_call()
                self._refuse_call(connection, _NO_MEMORY)
            return
        for row, connection in enumerate(callers):
            assert connection.batch is not None
            batch.copy(row, connection.batch.rows[0])
            connection.release_call()
        self._run_batch(batch, callers)
        batch.release()

    def _renew(self, batch: Batch, count: int) -> None:
        """Leaves the buffers to the answers that are still sent from them, and takes others."""
        try:
            self._batch = self._pool.take()
        except MemoryError:
            for connection in list(self.connections.values()):
                if connection.sending is batch:
                    self.close(connection)
            return
        for row in range(count):
            self._batch.copy(row, batch.rows[row])
        batch.release()
        self._slots = self._batch.slots

    def _run_batch(self, batch: Batch, callers: list[Connection]) -> None:
        """Runs the first rows of a batch, one for each caller, and answers them."""
        count = len(callers)
        bad = self._checks.bad_calls(batch.buffers, count)
        if bad:
            self._drop(batch, callers, bad)
            count = len(callers)
            if not count:
                return
        try:
            self._run_rows(batch, count)
        except RunFailed as error:
            if count == 1:
                self._refuse_call(callers[0], str(error))
            else:
                self._run_singly(batch, callers)
            return
        self.calls += count
        for connection, answer in zip(callers, batch.answers, strict=False):
            connection.waiting = False
            connection.due -= 1
            self._send(connection, answer, self._answer_size, batch)

    def _run_rows(self, batch: Batch, count: int) -> None:
        """Runs the first `count` rows; a larger size is filled up with copies of the first.

        What stood there may be what some client had sent of a call that is not complete.
        """
        size = self.plan.size_for[count]
        for row in range(count, size):
            batch.copy(row, batch.rows[0])
        self.engine.run(size, batch.buffers)
        self.runs += 1

    def _drop(self, batch: Batch, callers: list[Connection], bad: dict[int, str]) -> None:
        """Refuses the bad calls and moves the others together."""
        good: list[Connection] = []
        for row, connection in enumerate(callers):
            if row in bad:
                self._refuse_call(connection, bad[row])
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
                self._refuse_call(connection, _NO_MEMORY)
                continue
            single.copy(0, batch.rows[row])
            self._run_batch(single, [connection])
            single.release()

    def _refuse_call(self, connection: Connection, message: str) -> None:
        """Answers a call with an error; the connection goes on."""
        connection.waiting = False
        connection.due -= 1
        self._note("error", reason=message)
        data = memoryview(error_frame(message))
        self._send(connection, [data], len(data))

    def _refuse(self, connection: Connection, message: str) -> None:
        """Answers with an error and closes: the bytes that follow have no meaning."""
        self._note("error", reason=message)
        data = memoryview(error_frame(message))
        if self._send(connection, [data], len(data)):
            connection.finish()
            if not connection.outgoing and not connection.discard():
                self.close(connection)

    def _send(
        self,
        connection: Connection,
        pieces: list[memoryview],
        total: int,
        batch: Batch | None = None,
    ) -> bool:
        """Sends what the socket takes, and the rest, in `batch` if it is given, when it can."""
        copy = self._copies_rest or batch is None
        if not connection.send(pieces, total, copy=copy):
            self.close(connection)
            return False
        if connection.outgoing:
            if batch is not None and not copy:
                batch.users += 1
                connection.sending = batch
            # Until it has read its answer, nothing more is read from it.
            self.epoll.modify(connection.fd, _WRITE)
        return True

    def close(self, connection: Connection) -> None:
        """Lets go of a client."""
        del self.connections[connection.fd]
        self.epoll.unregister(connection.fd)
        connection.close()

    def _note(self, event: str, **facts: object) -> None:
        if self.log is not None:
            self.log(event, facts)


#: Connections that are taken at a time, and how long to wait before more are when there is no file
#: descriptor left for one.
_ACCEPTS = 64
_FULL_SECONDS = 0.1
_NO_MEMORY = "there is no memory for the call"
