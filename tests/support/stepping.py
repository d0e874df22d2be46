"""Turns of the server, one by one: clients do things before each look at the sockets.

So a call comes exactly while others are received, a client vanishes exactly between two looks, and
what is found wrong happens again.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sexpgpu.serve.endpoint import Endpoint
from sexpgpu.serve.engine import Engine
from sexpgpu.serve.hosted import Hosted, Limits
from sexpgpu.serve.protocol import frame
from sexpgpu.serve.server import Server
from sexpgpu.serve.session import open_session
from support.hosting import CPU
from support.serving import declare, onnx_hosted, plan_of

ROWS = 5


def model(width: int) -> Hosted:
    """An index into five rows, and numbers that come back with the other sign."""
    return onnx_hosted(
        declare({"i": ("i64", []), "x": ("f32", [width])}),
        declare({"j": ("i64", []), "y": ("f32", [width])}),
        "j = Neg (i)\ny = Neg (x)",
        {"i": Limits(0, ROWS)},
    )


class Looks:
    """The server's epoll; before each look at the sockets something may happen."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self.script: list[Callable[[], None]] = []
        self.count = 0

    def poll(self, seconds: float | None) -> list[tuple[int, int]]:
        self.count += 1
        if self.script:
            self.script.pop(0)()
        return self._epoll.poll(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)


class Stepped:
    """A server whose turns are taken by hand, and its clients."""

    def __init__(self, server: Server, looks: Looks, path: str, width: int) -> None:
        self.server = server
        self.looks = looks
        self.path = path
        self.width = width
        self.clients: list[ByHand] = []

    def connect(self) -> ByHand:
        self.clients.append(ByHand(self.path, self.width, len(self.clients)))
        return self.clients[-1]

    def turn(self, *happening: Callable[[], None]) -> bool:
        """A turn, before whose looks these things happen, as far as it looks."""
        self.looks.script = list(happening)
        return self.server.turn(0)

    def settle(self) -> None:
        """Turns until nothing comes any more, all clients reading."""
        for _ in range(10_000):
            for client in self.clients:
                client.finish()
                client.read()
            if not self.turn():
                return
        raise AssertionError("it never comes to rest")


class ByHand:
    """A client that waits for nothing; it knows what it sent, and keeps what it read."""

    def __init__(self, path: str, width: int, number: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.setblocking(False)
        self.expected: list[bytes] = []
        self.gone = False
        self.wrong = False
        self._width = width
        self._number = number
        self._unsent = bytearray()
        #: Where in what was ever to be sent each call ends.
        self._ends: list[int] = []
        self._sent = 0
        self._read = bytearray()

    def call(self, index: int = 0) -> None:
        """Has another call to send, whose answer is its own."""
        mark = self._number * 1000.0 + len(self.expected)
        x = [mark + place for place in range(self._width)]
        payload = struct.pack(f"<q{self._width}f", index, *x)
        if index < ROWS:
            answer = b"\0" + struct.pack(f"<q{self._width}f", -index, *(-value for value in x))
        else:
            answer = f"\1`i`: {index} is outside 0 to {ROWS - 1}".encode()
        self._add(frame(payload), answer)

    def claim(self, length: int) -> None:
        """Has a frame of a wrong length to send, after which there is nothing more to say."""
        size = 8 + 4 * self._width
        text = f"\1a call is {size:,} bytes, a frame of {length:,} came"
        self._add(struct.pack("<Q", length), text.encode())
        self.wrong = True

    def _add(self, data: bytes, answer: bytes) -> None:
        self._unsent += data
        self._ends.append(self._sent + len(self._unsent))
        self.expected.append(answer)

    def send(self, most: int | None = None) -> None:
        """Sends so many bytes of it, as far as the socket takes them."""
        if self.gone:
            return
        try:
            count = self.socket.send(self._unsent[:most])
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            assert self.wrong
            return
        del self._unsent[:count]
        self._sent += count

    def finish(self) -> None:
        """Sends what is left."""
        if self._unsent:
            self.send()

    def read(self) -> None:
        """Reads all that has come."""
        while not self.gone:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                assert self.wrong, "the server hung up"
                return
            self._read += data

    def answers(self) -> list[bytes]:
        """What came after the greeting, as far as it is whole."""
        found = []
        place = 0
        while place + 8 <= len(self._read):
            (length,) = struct.unpack_from("<Q", self._read, place)
            if place + 8 + length > len(self._read):
                break
            found.append(bytes(self._read[place + 8 : place + 8 + length]))
            place += 8 + length
        return found[1:]

    def greeted(self) -> bool:
        """Whether it has been accepted, and the greeting has come."""
        self.read()
        return bool(self._read)

    def asked(self) -> int:
        """How many calls it has sent whole."""
        return sum(end <= self._sent for end in self._ends)

    def vanish(self) -> None:
        self.gone = True
        self.socket.close()


@contextmanager
def stepped(
    limit: int, sizes: Sequence[int], together: Sequence[int] = (), width: int = 3
) -> Iterator[Stepped]:
    hosted = model(width)
    engine = Engine(open_session(hosted, CPU, 1), hosted, limit)
    with tempfile.TemporaryDirectory() as folder:
        place = Endpoint(Path(folder) / "s", 0o600)
        wake, wake_write = os.pipe()
        listener = place.listen()
        server = Server(engine, plan_of(sizes, limit, together), frame(b"{}"), listener, wake)
        looks = Looks(server._epoll)
        server._epoll = looks  # type: ignore[assignment]
        looks.register(listener, select.EPOLLIN)
        found = Stepped(server, looks, str(place.path), width)
        try:
            yield found
            for client in found.clients:
                client.vanish()
            while server.turn(0):
                pass
            assert not server.connections
        finally:
            listener.close()
            place.remove()
            os.close(wake)
            os.close(wake_write)
