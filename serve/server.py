"""The server: one thread that waits on every client at once and runs what has come together.

A call is received straight into the next free row of the input buffers, and answered straight from
the output buffers.  When nothing more is ready, or the rows are full, the rows that have come are
run as one batch: a call that arrives alone runs at once, and while the device is busy the next
batch gathers in the sockets.  There is no timer.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Sequence

from sexpgpu.serve.checks import CallChecks
from sexpgpu.serve.connection import Connection
from sexpgpu.serve.engine import Engine, RunFailed
from sexpgpu.serve.probe import Plan
from sexpgpu.serve.protocol import HEADER, OK, error_frame, record_bytes

#: Larger calls are received by their connection, not in the rows, so that a slow client holds none.
_IN_PLACE_LIMIT = 1 << 18

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
        self._greeting = greeting
        self._listener = listener
        self._wake = wake
        self._stopping = False
        self._checks = CallChecks(engine.hosted)
        self._call_size = record_bytes(engine.hosted.inputs)
        self._answer_size = HEADER.size + 1 + record_bytes(engine.hosted.outputs)
        self._in_place = self._call_size <= _IN_PLACE_LIMIT
        self._connections: dict[int, Connection] = {}
        self._waiting: list[Connection] = []
        self._header = bytearray(HEADER.size)
        self._expected = HEADER.pack(self._call_size)
        self._epoll = select.epoll()
        self._make_rows()

    def _make_rows(self) -> None:
        """The pieces of each row: where a call is received to, and where an answer is sent from."""
        buffers = self.engine.buffers
        header = memoryview(self._header)
        head = memoryview(HEADER.pack(self._answer_size - HEADER.size) + bytes([OK]))
        count = self.plan.limit
        inputs = [
            [rows.row(i) for rows in buffers.inputs if rows.spec.nbytes] for i in range(count)
        ]
        self._rows = inputs
        self._slots = [[header, *pieces] for pieces in inputs]
        self._answers = [
            [head, *(rows.row(i) for rows in buffers.outputs if rows.spec.nbytes)]
            for i in range(count)
        ]

    def stop(self) -> None:
        """Answers the calls that have arrived, and then returns from `serve`."""
        self._stopping = True

    def serve(self) -> None:
        """Runs until it is stopped."""
        listener, poll = self._listener.fileno(), self._epoll.poll
        self._epoll.register(listener, select.EPOLLIN)
        self._epoll.register(self._wake, select.EPOLLIN)
        limit = self.plan.limit
        while not self._stopping:
            for fd, events in poll():
                if fd == listener:
                    self._accept()
                elif fd == self._wake:
                    continue
                else:
                    self._handle(self._connections[fd], events)
                    if len(self._waiting) == limit:
                        self._run()
            if self._waiting:
                self._run()
        self._finish()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Out of file descriptors: those who wait in the queue are taken when one is free.
                self._note("refused", reason=str(error))
                return
            sock.setblocking(False)
            connection = Connection(sock, self._call_size)
            self._connections[connection.fd] = connection
            self._epoll.register(connection.fd, _READ)
            self._send(connection, [self._greeting], len(self._greeting))

    def _handle(self, connection: Connection, events: int) -> None:
        if connection.waiting:
            # It hung up while its call waits; the answer's sending will find out.
            return
        if events & _WRITE:
            if not connection.flush():
                self._close(connection)
                return
            if not connection.outgoing:
                if connection.closing:
                    connection.finish()
                self._epoll.modify(connection.fd, _READ)
            return
        if connection.closing:
            if not connection.discard():
                self._close(connection)
            return
        if connection.outgoing:
            if events & (select.EPOLLHUP | select.EPOLLERR):
                self._close(connection)
            return
        self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        """Takes in what has come: a whole call into the next row, most of the time."""
        row = len(self._waiting)
        if self._in_place and not connection.is_partial:
            slot = self._slots[row]
            try:
                count = os.readv(connection.fd, slot)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if count == self._call_size + HEADER.size and self._header == self._expected:
                connection.waiting = True
                self._waiting.append(connection)
                return
            if count == 0:
                self._close(connection)
                return
            if count >= HEADER.size and self._header != self._expected:
                self._refuse(connection, connection.wrong_length(self._header) or "")
                return
            connection.begun(memoryview(self._header), self._rows[row], count)
        outcome = connection.receive()
        if outcome == "call":
            self._place(connection, row)
        elif outcome == "closed":
            self._close(connection)
        elif outcome is not None:
            self._refuse(connection, outcome)

    def _place(self, connection: Connection, row: int) -> None:
        """Puts a call that came in pieces into the next row."""
        assert connection.record is not None
        view = memoryview(connection.record)
        place = 0
        for piece in self._rows[row]:
            piece[:] = view[place : place + len(piece)]
            place += len(piece)
        connection.waiting = True
        self._waiting.append(connection)

    def _run(self) -> None:
        """Runs the calls that wait as one batch, and answers them."""
        callers, count = self._waiting, len(self._waiting)
        self._waiting = []
        bad = self._checks.bad_calls(self.engine.buffers, count)
        if bad:
            count = self._drop(callers, bad)
        if count:
            try:
                self.engine.run(self.plan.size_for[count])
                self.runs += 1
            except RunFailed:
                self._run_singly(callers)
                return
            for connection, answer in zip(callers, self._answers, strict=False):
                self._answer(connection, answer)

    def _answer(self, connection: Connection, answer: list[memoryview]) -> None:
        self.calls += 1
        connection.waiting = False
        self._send(connection, answer, self._answer_size)

    def _drop(self, callers: list[Connection], bad: dict[int, str]) -> int:
        """Refuses the bad calls and moves the others together; how many those are."""
        kept = 0
        good: list[Connection] = []
        for row, connection in enumerate(callers):
            if row in bad:
                self._refuse_call(connection, bad[row])
                continue
            if row != kept:
                for target, source in zip(self._rows[kept], self._rows[row], strict=True):
                    target[:] = source
            good.append(connection)
            kept += 1
        callers[:] = good
        return kept

    def _run_singly(self, callers: list[Connection]) -> None:
        """After a batch that failed: each call by itself, so that only the culprit has an error."""
        for row, connection in enumerate(callers):
            if row:
                for target, source in zip(self._rows[0], self._rows[row], strict=True):
                    target[:] = source
            try:
                self.engine.run(self.plan.size_for[1])
            except RunFailed as error:
                self._refuse_call(connection, str(error))
                continue
            self.runs += 1
            self._answer(connection, self._answers[0])

    def _refuse_call(self, connection: Connection, message: str) -> None:
        """Answers a call with an error; the connection goes on."""
        connection.waiting = False
        self._note("error", reason=message)
        data = error_frame(message)
        self._send(connection, [data], len(data))

    def _refuse(self, connection: Connection, message: str) -> None:
        """Answers with an error and closes: the bytes that follow have no meaning."""
        self._note("error", reason=message)
        data = error_frame(message)
        if self._send(connection, [data], len(data)):
            connection.finish()
            if not connection.outgoing and not connection.discard():
                self._close(connection)

    def _send(self, connection: Connection, pieces: Sequence[memoryview | bytes], total: int) -> bool:
        if not connection.send(pieces, total):
            self._close(connection)
            return False
        if connection.outgoing:
            # Until it has read its answer, nothing more is read from it.
            self._epoll.modify(connection.fd, _WRITE)
        return True

    def _close(self, connection: Connection) -> None:
        self._connections.pop(connection.fd, None)
        self._epoll.unregister(connection.fd)
        connection.close()

    def _finish(self) -> None:
        """Answers what has arrived, sends what is left to send, and closes every connection."""
        self._epoll.unregister(self._listener.fileno())
        self._epoll.unregister(self._wake)
        self._listener.close()
        for fd, events in self._epoll.poll(0):
            if fd in self._connections and events & select.EPOLLIN:
                self._handle(self._connections[fd], events)
                if len(self._waiting) == self.plan.limit:
                    self._run()
        if self._waiting:
            self._run()
        for connection in list(self._connections.values()):
            if connection.outgoing:
                connection.sock.settimeout(_STOP_SECONDS)
                connection.flush()
            self._close(connection)
        self._epoll.close()

    def _note(self, event: str, **facts: object) -> None:
        if self.log is not None:
            self.log(event, facts)


#: How long a stop waits for a client that does not read its answer.
_STOP_SECONDS = 5.0
