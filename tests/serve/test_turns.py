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

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.serve import server as module
from sexpgpu.serve.endpoint import Endpoint
from sexpgpu.serve.engine import Engine
from sexpgpu.serve.hosted import Hosted, Limits
from sexpgpu.serve.protocol import frame
from sexpgpu.serve.server import Server
from sexpgpu.serve.session import open_session
from support.hosting import CPU
from support.serving import declare, onnx_hosted, plan_of

#: The least that the system takes for a socket's buffer.
_SMALL_BUFFER = 4608
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


def test_calls_that_come_while_others_are_received_run_with_them() -> None:
    with stepped(8, range(1, 9)) as stand:
        one, two, three, late, silent = (stand.connect() for _ in range(5))
        stand.settle()
        for client in (one, two, three, late):
            client.call()

        def sends(*clients: ByHand) -> Callable[[], None]:
            return lambda: [client.finish() for client in clients] and None

        stand.turn(sends(one, two), sends(three), sends(late))
        assert (stand.server.runs, stand.server.calls) == (1, 4)
        stand.settle()
        for client in (one, two, three, late):
            assert client.answers() == client.expected
        assert silent.answers() == []


def test_it_does_not_look_for_others_where_all_have_called() -> None:
    with stepped(8, range(1, 9)) as stand:
        clients = [stand.connect() for _ in range(3)]
        stand.settle()
        for client in clients:
            client.call()
            client.finish()
        before = stand.looks.count
        stand.turn()
        assert stand.looks.count == before + 1
        assert (stand.server.runs, stand.server.calls) == (1, 3)


def test_a_second_call_of_one_who_waits_is_for_the_next_run() -> None:
    with stepped(8, range(1, 9)) as stand:
        eager, other = stand.connect(), stand.connect()
        stand.settle()
        for _ in range(5):
            eager.call()
        eager.finish()
        stand.turn()
        assert (stand.server.runs, stand.server.calls) == (1, 1)
        other.call()
        other.finish()
        stand.turn()
        assert (stand.server.runs, stand.server.calls) == (2, 3)
        stand.settle()
        assert eager.answers() == eager.expected
        assert other.answers() == other.expected


def test_clients_that_go_on_calling_do_not_keep_a_turn_from_its_end() -> None:
    """Whoever is answered asks again at once; the one that waits is run all the same."""
    with stepped(3, range(1, 4)) as stand:
        eager = [stand.connect() for _ in range(8)]
        waiting = stand.connect()
        stand.settle()

        def again() -> None:
            for client in eager:
                client.read()
                if len(client.answers()) == len(client.expected):
                    client.call()
                    client.finish()

        waiting.call()
        waiting.finish()
        before = stand.looks.count
        stand.turn(*[again] * 1000)
        # A look that adds no call is the last, and fewer than the limit can wait.
        assert stand.looks.count - before <= 3 + 1
        waiting.read()
        assert waiting.answers() == waiting.expected


LAYOUTS: list[tuple[int, Sequence[int], Sequence[int]]] = [
    (1, [1], ()),
    (2, [1, 2], ()),
    (3, [3], ()),
    (4, [1, 2, 4], (0, 1, 1, 2, 2)),
    (8, range(1, 9), ()),
]

CLIENTS = 6
#: What a client does, which one, and a number.
Deed = tuple[str, int, int]


def deeds(kinds: Sequence[str]) -> st.SearchStrategy[list[list[Deed]]]:
    """What happens before each look."""
    deed = st.tuples(st.sampled_from(kinds), st.integers(0, CLIENTS - 1), st.integers(0, 40))
    return st.lists(st.lists(deed, max_size=6), min_size=1, max_size=40)


def do(stand: Stepped, kind: str, which: int, number: int) -> None:
    client = stand.clients[which]
    if client.gone:
        # Someone else comes in its place.
        stand.clients[which] = ByHand(stand.path, stand.width, 50 + number)
        return
    if kind == "read":
        client.read()
    elif kind == "part":
        client.send(1 + number * 4 * stand.width // 40)
    elif kind == "vanish":
        client.vanish()
    elif not client.wrong:
        if kind == "wrong":
            client.claim(1000 + number)
        else:
            for _ in range(1 + number % 3 if kind == "ahead" else 1):
                client.call(number % ROWS if kind != "bad" else ROWS + number)
        if kind != "begin":
            client.finish()


@pytest.mark.parametrize("own_buffers", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"up to {layout[0]}")
@given(script=deeds(["call", "ahead", "ahead", "begin", "part", "bad", "wrong", "vanish"]))
@settings(max_examples=40)
def test_whoever_had_asked_is_answered_by_the_end_of_a_turn(
    layout: tuple[int, Sequence[int], Sequence[int]], own_buffers: bool, script: list[list[Deed]]
) -> None:
    """In order, with its own bits, whatever the others do before any look."""
    with pytest.MonkeyPatch.context() as patch:
        if own_buffers:
            patch.setattr(module, "_IN_PLACE_LIMIT", 0)
        with stepped(*layout) as stand:
            for _ in range(CLIENTS):
                stand.connect()
            stand.settle()
            pending = [_doing(stand, happening) for happening in script]
            while pending:
                first = pending.pop(0)
                first()
                had = {client: client.asked() for client in stand.clients if client.greeted()}
                seen = {client: len(client.answers()) for client in stand.clients}
                stand.turn(lambda: None, *pending)
                pending = stand.looks.script
                for client, asked in had.items():
                    client.read()
                    if asked > seen[client] and not client.gone:
                        assert len(client.answers()) > seen[client]
            _check_in_the_end(stand)


def _doing(stand: Stepped, happening: list[Deed]) -> Callable[[], None]:
    def happen() -> None:
        for deed in happening:
            do(stand, *deed)

    return happen


def _check_in_the_end(stand: Stepped) -> None:
    stand.settle()
    for client in stand.clients:
        if not client.gone:
            assert client.answers() == client.expected


@pytest.mark.parametrize("own_buffers", [False, True])
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"up to {layout[0]}")
@given(script=deeds(["call", "ahead", "begin", "part", "read", "read", "vanish", "wrong"]))
@settings(max_examples=15)
def test_answers_that_are_read_late_are_whole(
    layout: tuple[int, Sequence[int], Sequence[int]],
    copies: bool,
    own_buffers: bool,
    script: list[list[Deed]],
) -> None:
    """Of several times what a socket takes, while the buffers that they lie in are used again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_COPY_LIMIT", 1 << 18 if copies else 0)
        if own_buffers:
            patch.setattr(module, "_IN_PLACE_LIMIT", 0)
        with stepped(*layout, width=4000) as stand:
            for _ in range(CLIENTS):
                stand.connect()
            pending = [_doing(stand, happening) for happening in script]
            while pending:
                stand.turn(*pending)
                pending = stand.looks.script
                for connection in stand.server.connections.values():
                    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SMALL_BUFFER)
            _check_in_the_end(stand)
