"""One client of the socket: what it has sent so far, and what it is still to be sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

from sexpgpu.serve.batch import Batch
from sexpgpu.serve.protocol import HEADER, PIECES, advance

#: A client that is being closed after an error is read from, and ignored, up to so many bytes, so
#: that it gets to see the error.
_DISCARD_LIMIT = 1 << 20
#: Reads in a row from one client, so that a large call does not keep the others waiting.
_READS = 16


class Connection:
    """A non-blocking socket; nothing it does waits for anyone.

    `size` is the number of bytes of a call, `received` how much of one has come.  A large call is
    received into `batch`, the pieces of a small one into `record`.  `outgoing` is the rest of an
    answer, which lies in `sending`.  `due` says how many calls it is still to be answered when the
    server stops.
    """

    __slots__ = (
        "_discarded",
        "_header",
        "_rest",
        "_size",
        "batch",
        "closing",
        "due",
        "fd",
        "outgoing",
        "received",
        "record",
        "sending",
        "sock",
    )

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.received = 0
        self.closing = False
        self.due = 0
        self.outgoing: list[memoryview] = []
        self.record: memoryview | None = None
        self.batch: Batch | None = None
        self.sending: Batch | None = None
        self._size = size
        self._header = bytearray(HEADER.size)
        self._rest: list[memoryview] | None = None
        self._discarded = 0

    def begin(self, slot: Sequence[memoryview], received: int) -> None:
        """Keeps the beginning of a small call that was received elsewhere, its header included."""
        header, *pieces = slot
        taken = min(received, HEADER.size)
        self._header[:taken] = header[:taken]
        self.received = received
        rest = received - taken
        if rest:
            [record] = self.keep_record()
            place = 0
            for piece in pieces:
                part = piece[: rest - place]
                record[place : place + len(part)] = part
                place += len(part)
            self._rest = [record[rest:]]

    def keep_record(self) -> list[memoryview]:
        """A place for a small call."""
        self.record = memoryview(bytearray(self._size))
        return [self.record]

    def move_record(self, row: Sequence[memoryview]) -> None:
        """Puts a small call that came in pieces where it is run."""
        record, self.record = self.record, None
        place = 0
        for piece in row:
            assert record is not None
            piece[:] = record[place : place + len(piece)]
            place += len(piece)

    def receive(self, find_place: Callable[[Connection], list[memoryview]]) -> str | None:
        """Reads on in a call, whose header tells whether a place for it is asked for.

        None: it is not complete yet.  "call": it is.  "closed": the client has gone.  Anything else
        is what is wrong with it.
        """
        for _ in range(_READS):
            if self.received < HEADER.size:
                pieces = [memoryview(self._header)[self.received :]]
            else:
                if self._rest is None:
                    wrong = self.wrong_length(self._header)
                    if wrong is not None:
                        return wrong
                    try:
                        self._rest = list(find_place(self))
                    except MemoryError:
                        return "there is no memory for the call"
                pieces = self._rest[:PIECES]
                if not self._size:
                    break
            try:
                count = os.readv(self.fd, pieces)
            except BlockingIOError:
                return None
            except OSError:
                return "closed"
            if count == 0:
                return "closed"
            self.received += count
            if self._rest is not None:
                advance(self._rest, count)
                if not self._rest:
                    break
        else:
            return None
        self.received = 0
        self._rest = None
        return "call"

    def wrong_length(self, header: bytes | bytearray | memoryview) -> str | None:
        """What is wrong with a call's length; None where it is right."""
        (length,) = HEADER.unpack(header)
        if length == self._size:
            return None
        return f"a call is {self._size:,} bytes, a frame of {length:,} came"

    def send(self, pieces: list[memoryview]) -> int | None:
        """Sends what the socket takes now, and says how much; None when the client has gone."""
        try:
            return os.writev(self.fd, pieces if len(pieces) <= PIECES else pieces[:PIECES])
        except BlockingIOError:
            return 0
        except OSError:
            return None

    def keep(self, pieces: list[memoryview], sent: int, batch: Batch | None) -> None:
        """Keeps the rest of what was sent, in the batch that it lies in or as a copy."""
        rest = list(pieces)
        advance(rest, sent)
        if batch is None:
            self.outgoing = [memoryview(bytes(piece)) for piece in rest]
        else:
            self.outgoing = rest
            self.sending = batch
            batch.users += 1

    def flush(self) -> bool:
        """Sends more of what is kept; false when the client has gone."""
        try:
            sent = os.writev(self.fd, self.outgoing[:PIECES])
        except BlockingIOError:
            return True
        except OSError:
            return False
        advance(self.outgoing, sent)
        if not self.outgoing:
            self.release_answer()
        return True

    def finish(self) -> None:
        """After the last answer: no more is sent, and what still comes is ignored."""
        self.closing = True
        self.release_call()
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

    def release_call(self) -> None:
        """Gives back the memory of the call that it sent."""
        self._rest = self.record = None
        if self.batch is not None:
            self.batch.release()
            self.batch = None

    def release_answer(self) -> None:
        """Gives back the memory of the answer that it was sent."""
        self.outgoing = []
        if self.sending is not None:
            self.sending.release()
            self.sending = None

    def close(self) -> None:
        """Gives everything back."""
        self.release_call()
        self.release_answer()
        self.sock.close()
