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
from sexpgpu.serve.connection import Connection
from sexpgpu.serve.engine import Engine
from sexpgpu.serve.probe import Plan
from sexpgpu.serve.protocol import HEADER, PIECES, error_frame, record_bytes
from sexpgpu.serve.runner import Runner
from sexpgpu.serve.stopping import finish

#: Larger calls are received into buffers of their own.
_IN_PLACE_LIMIT = 1 << 18
#: The rest of a larger answer is sent from where it lies, of a smaller one from a copy.
_COPY_LIMIT = 1 << 18
#: Connections that are taken at a time, and how long to wait before more are when there is no file
#: descriptor left for one.
_ACCEPTS = 64
_FULL_SECONDS = 0.1

_IN = select.EPOLLIN
_READ = select.EPOLLIN | select.EPOLLRDHUP
_WRITE = select.EPOLLOUT


class Server:
    """Serves clients of a listening socket until `stop` is called.

    `wake` is a file descriptor that becomes readable when it should look whether to stop.
    """

    def __init__(
        self, engine: Engine, plan: Plan, greeting: bytes, listener: socket.socket, wake: int
    ) -> None:
        self.log: Callable[[str, dict[str, object]], None] | None = None
        self.connections: dict[int, Connection] = {}
        self.waiting: list[Connection] = []
        self.call_size = record_bytes(engine.hosted.inputs)
        self._greeting = memoryview(greeting)
        self._listener = listener
        self._wake = wake
        self._stopping = False
        self._full = False
        self._frame_size = HEADER.size + self.call_size
        self._expected = HEADER.pack(self.call_size)
        self._answer_size = HEADER.size + 1 + record_bytes(engine.hosted.outputs)
        self._copies_rest = self._answer_size <= _COPY_LIMIT
        self._limit = plan.limit
        self._together = plan.together
        self._lone = plan.size_for[1] == 1
        self._pool = Pool(engine, plan.limit, 1, engine.buffers)
        self._singles = Pool(engine, 1, plan.limit) if plan.limit > 1 else self._pool
        self._runner = Runner(engine, plan, self._pool, self)
        small = self.call_size <= _IN_PLACE_LIMIT and len(engine.hosted.inputs) < PIECES
        self._batch = self._pool.take() if small else None
        self._slots = self._batch.slots if self._batch else []
        self._header = self._pool.header
        self._epoll = select.epoll()

    @property
    def calls(self) -> int:
        """The calls that were answered, errors not counted."""
        return self._runner.calls

    @property
    def runs(self) -> int:
        """The runs that they took."""
        return self._runner.runs

    def stop(self) -> None:
        """Answers the calls that have arrived, and then returns from `serve`."""
        self._stopping = True

    def serve(self) -> None:
        """Runs until it is stopped."""
        self._epoll.register(self._listener, select.EPOLLIN)
        self._epoll.register(self._wake, select.EPOLLIN)
        while not self._stopping:
            self.turn(_FULL_SECONDS if self._full else None)
        self._epoll.unregister(self._wake)
        if not self._full:
            self._epoll.unregister(self._listener)
        self._full = False
        self._listener.close()
        finish(self)
        self._epoll.close()

    def turn(self, seconds: float | None) -> bool:
        """Waits until something is ready, takes it in and runs it; false when nothing was."""
        events = self._epoll.poll(seconds)
        found = bool(events)
        if self._full:
            self._full = False
            self._epoll.register(self._listener, select.EPOLLIN)
        while events:
            before = len(self.waiting)
            self._take(events)
            # While some were received others have come: they are looked for as long as they do.
            if not before < len(self.waiting) < len(self.connections):
                break
            taken = {connection.fd for connection in self.waiting}
            events = [event for event in self._epoll.poll(0) if event[0] not in taken]
        if self.waiting:
            self._run()
        return found

    def _take(self, events: list[tuple[int, int]]) -> None:
        """Takes in what is ready, and runs the rows as often as they are full."""
        find, limit = self.connections.get, self._limit
        for fd, event in events:
            connection = find(fd)
            if connection is not None:
                if event == _IN and not connection.closing:
                    self._receive(connection)
                else:
                    self._handle(connection, event)
                if len(self.waiting) == limit:
                    self._run()
            elif fd == self._listener.fileno():
                self._accept()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Out of file descriptors: those who wait in the queue are taken when one is free.
                self._note("refused", reason=error.strerror or str(error))
                self._epoll.unregister(self._listener)
                self._full = True
                return
            sock.setblocking(False)
            connection = Connection(sock, self.call_size)
            self.connections[connection.fd] = connection
            self._epoll.register(connection.fd, _READ)
            self._note("connected", clients=len(self.connections))
            self._say(connection, self._greeting)

    def _handle(self, connection: Connection, event: int) -> None:
        """What is not simply more of a call: an answer goes on, or a client goes."""
        if connection.outgoing:
            if not connection.flush():
                self.close(connection)
            elif not connection.outgoing:
                if connection.closing:
                    connection.finish()
                self._epoll.modify(connection.fd, _READ)
        elif connection.closing:
            if not connection.discard():
                self.close(connection)
        elif event != _WRITE:
            self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        """Takes in what has come: a whole call into the next row, most of the time."""
        batch = self._batch
        if batch is not None and not connection.received:
            slot = self._slots[len(self.waiting)]
            try:
                count = os.readv(connection.fd, slot)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if count == self._frame_size and self._header == self._expected:
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
                connection.move_record(batch.rows[len(self.waiting)])
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

    def _run(self) -> None:
        """Runs the calls that wait, most often as one batch, and answers them."""
        callers = self.waiting
        self.waiting = []
        while callers:
            count = self._together[len(callers)]
            if self._batch is not None and self._batch.users > 1:
                self._renew(self._batch, len(callers))
            self._run_together(callers[:count])
            callers = callers[count:]
            if callers and self._batch is not None:
                for row in range(len(callers)):
                    self._batch.copy(row, self._batch.rows[count + row])

    def _run_together(self, callers: list[Connection]) -> None:
        if self._batch is not None:
            self._runner.run(self._batch, callers)
        elif len(callers) == 1 and self._lone:
            batch, callers[0].batch = callers[0].batch, None
            assert batch is not None
            self._runner.run(batch, callers)
            batch.release()
        else:
            self._runner.gather(callers)

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

    def answer(self, connection: Connection, pieces: list[memoryview], batch: Batch) -> None:
        """Sends an answer, and what the socket does not take of it when it can."""
        connection.due -= 1
        sent = connection.send(pieces)
        if sent == self._answer_size:
            return
        if sent is None:
            self.close(connection)
            return
        connection.keep(pieces, sent, None if self._copies_rest else batch)
        # Until it has read its answer, nothing more is read from it.
        self._epoll.modify(connection.fd, _WRITE)

    def refuse_call(self, connection: Connection, message: str) -> None:
        """Answers a call with an error; the connection goes on."""
        connection.due -= 1
        self._note("error", reason=message)
        self._say(connection, memoryview(error_frame(message)))

    def _refuse(self, connection: Connection, message: str) -> None:
        """Answers with an error and closes: the bytes that follow have no meaning."""
        self._note("error", reason=message)
        if self._say(connection, memoryview(error_frame(message))):
            connection.finish()
            if not connection.outgoing and not connection.discard():
                self.close(connection)

    def _say(self, connection: Connection, text: memoryview) -> bool:
        """Sends what lies in no batch; false when the client has gone."""
        sent = connection.send([text])
        if sent is None:
            self.close(connection)
            return False
        if sent < len(text):
            connection.keep([text], sent, None)
            self._epoll.modify(connection.fd, _WRITE)
        return True

    def close(self, connection: Connection) -> None:
        """Lets go of a client."""
        del self.connections[connection.fd]
        self._epoll.unregister(connection.fd)
        connection.close()
        self._note("closed", clients=len(self.connections))

    def _note(self, event: str, **facts: object) -> None:
        if self.log is not None:
            self.log(event, facts)
