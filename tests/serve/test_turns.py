"""Turns of the server, taken by hand, whatever clients do between two looks at the sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.serve import server as module
from support.stepping import ROWS, ByHand, Stepped, stepped

#: The least that the system takes for a socket's buffer.
_SMALL_BUFFER = 4608


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
