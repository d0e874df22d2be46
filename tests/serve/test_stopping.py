"""The end of a server, taken by hand: who is still answered, and who is not waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sexpgpu.serve import stopping
from sexpgpu.serve.stopping import finish
from support.stepping import ByHand, Stepped, stepped


@pytest.fixture
def stand() -> Iterator[Stepped]:
    with stepped(4, range(1, 5)) as found:
        for _ in range(3):
            found.connect()
        found.settle()
        yield found


def _ended(client: ByHand) -> bool:
    """Whether the server has hung up; what it sent before is read."""
    client.wrong = True
    client.read()
    try:
        return client.socket.recv(1) == b""
    except ConnectionResetError:
        return True


def test_calls_that_have_come_are_answered(stand: Stepped) -> None:
    """Those that a client sent ahead too, in order."""
    one, ahead, silent = stand.clients
    one.call()
    for _ in range(3):
        ahead.call()
    one.finish()
    ahead.finish()
    finish(stand.server)
    for client in stand.clients:
        assert _ended(client)
        assert client.answers() == client.expected
    assert silent.answers() == []
    assert stand.server.calls == 4


def test_calls_that_come_later_are_not(stand: Stepped) -> None:
    """A client that goes on calling as soon as it is answered keeps nothing alive."""
    eager, other, _ = stand.clients
    eager.call()
    other.call()
    eager.finish()
    other.finish()

    def again() -> None:
        eager.wrong = True
        eager.read()
        if len(eager.answers()) == len(eager.expected):
            eager.call()
            eager.finish()

    stand.looks.script = [again] * 1000
    before = stand.looks.count
    finish(stand.server)
    assert stand.looks.count - before < 10
    for client in (eager, other):
        assert _ended(client)
        assert client.answers() == client.expected[:1]


@pytest.mark.parametrize("pieces", [1, 3, 23])
def test_a_call_that_is_being_sent_is_answered(stand: Stepped, pieces: int) -> None:
    client = stand.clients[0]
    client.call()
    client.send(5)
    stand.turn()
    stand.looks.script = [lambda: client.send(-(-23 // pieces)) for _ in range(pieces)]
    finish(stand.server)
    assert _ended(client)
    assert client.answers() == client.expected


def test_whoever_has_begun_and_does_not_go_on_is_not_waited_for(stand: Stepped) -> None:
    half, other, _ = stand.clients
    half.call()
    half.send(15)
    other.call()
    other.finish()
    before = stand.looks.count
    finish(stand.server)
    assert stand.looks.count - before < 10
    assert _ended(half)
    assert _ended(other)
    assert half.answers() == []
    assert other.answers() == other.expected


def test_whoever_does_not_read_is_waited_for_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with stepped(2, [1, 2], width=100_000) as stand:
        silent, other = stand.connect(), stand.connect()
        stand.settle()
        for client in (silent, other):
            client.call()
            while client.asked() < 1:
                client.finish()
                stand.turn()
        other.wrong = True
        now = iter(range(1000))
        monkeypatch.setattr(stopping.time, "monotonic", lambda: float(next(now)))
        stand.looks.script = [other.read] * 1000
        before = stand.looks.count
        finish(stand.server)
        # The clock goes on by a second at each look at it.
        assert stand.looks.count - before < 2 * stopping._STOP_SECONDS
        assert other.answers() == other.expected
        assert silent.answers() == []
        assert stand.server.connections == {}
