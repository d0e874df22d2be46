"""One client of the socket: what it has sent so far, and what it is still to be sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from sexpgpu.serve.protocol import HEADER

#: A client that is being closed after an error is read from, and ignored, up to so many bytes, so
#: that it gets to see the error.
_DISCARD_LIMIT = 1 << 20


class Connection:
    """A non-blocking socket; nothing it does waits for anyone.

    `call` is the number of bytes of a call.  `record` holds one that came in pieces.
    """

    __slots__ = (
        "_discarded",
        "_header",
        "_received",
        "_size",
        "closing",
        "fd",
        "outgoing",
        "record",
        "sock",
        "waiting",
    )

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self._size = size
        self._header = bytearray(HEADER.size)
        self._received = 0
        self._discarded = 0
        self.record: bytearray | None = None
        self.outgoing: list[memoryview] = []
        self.waiting = False
        self.closing = False

    def begun(self, header: memoryview, pieces: Sequence[memoryview], received: int) -> None:
        """Keeps the beginning of a call that was received elsewhere."""
        taken = min(received, HEADER.size)
        self._header[:taken] = header[:taken]
        self._received = received
        rest = received - taken
        if rest:
            self.record = bytearray(self._size)
            place = 0
            for piece in pieces:
                part = piece[: rest - place]
                self.record[place : place + len(part)] = part
                place += len(part)

    @property
    def is_partial(self) -> bool:
        """Whether a call has begun and is not complete."""
        return self._received > 0

    def receive(self) -> str | None:
        """Reads on in a call that has begun.

        None: it is not complete yet.  "call": it is, in `record`.  "closed": the client has gone.
        Anything else is what is wrong with it.
        """
        while True:
            try:
                if self._received < HEADER.size:
                    view = memoryview(self._header)[self._received :]
                else:
                    wrong = self.wrong_length(self._header)
                    if wrong is not None:
                        return wrong
                    if self.record is None:
                        self.record = bytearray(self._size)
                    view = memoryview(self.record)[self._received - HEADER.size :]
                    if not view:
                        self._received = 0
                        return "call"
                count = self.sock.recv_into(view)
            except BlockingIOError:
                return None
            except OSError:
                return "closed"
            if count == 0:
                return "closed"
            self._received += count

    def wrong_length(self, header: bytes | bytearray | memoryview) -> str | None:
        """What is wrong with a call's length; None where it is right."""
        (length,) = HEADER.unpack(header)
        if length == self._size:
            return None
        return f"a call is {self._size:,} bytes, a frame of {length:,} came"

    def send(self, pieces: Sequence[memoryview | bytes], total: int) -> bool:
        """Sends what the socket takes now and keeps a copy of the rest; false when it has gone."""
        try:
            sent = os.writev(self.fd, pieces)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < total:
            for piece in pieces:
                size = len(piece)
                if sent < size:
                    self.outgoing.append(memoryview(bytes(piece[sent:])))
                sent = max(0, sent - size)
        return True

    def flush(self) -> bool:
        """Sends more of what is kept; false when the client has gone."""
        while self.outgoing:
            piece = self.outgoing[0]
            try:
                sent = self.sock.send(piece)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if sent == len(piece):
                self.outgoing.pop(0)
            else:
                self.outgoing[0] = piece[sent:]
        return True

    def finish(self) -> None:
        """After the last answer: no more is sent, and what still comes is ignored."""
        self.closing = True
        if not self.outgoing:
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError:
                return

    def discard(self) -> bool:
        """Ignores what a client that is being closed still sends; false when it can be closed."""
        while self._discarded < _DISCARD_LIMIT:
            try:
                count = len(self.sock.recv(1 << 16))
            except BlockingIOError:
                return True
            except OSError:
                return False
            if count == 0:
                return False
            self._discarded += count
        return False

    def close(self) -> None:
        """Gives everything back."""
        self.outgoing.clear()
        self.record = None
        self.sock.close()
