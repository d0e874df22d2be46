"""Any bytes in any pieces: the answers are what the protocol says, and nobody else notices."""

from __future__ import annotations

import itertools
import os
import random
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.serve.hosted import Hosted, Limits
from support.serving import Live, Wire, declare, onnx_hosted, serving, wait_until

SIZE = 12
"""A call: four booleans, and an index of 8 bytes into 5 rows."""


def _hosted() -> Hosted:
    return onnx_hosted(
        declare({"mask": ("bool", [4]), "index": ("i64", [])}),
        declare({"flipped": ("bool", [4]), "row": ("i32", [])}),
        "flipped = Not (mask)\ntable = Constant <value = int32[5] {7, 8, 9, 10, 11}> ()\n"
        "row = Gather (table, index)",
        {"index": Limits(-5, 5)},
    )


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(_hosted(), limit=3) as running:
        yield running


def expected_answers(stream: bytes) -> tuple[list[bytes | None], bool]:
    """The answer to every call of a stream, None for an error, and whether the last one ends it."""
    answers: list[bytes | None] = []
    while len(stream) >= 8:
        (length,) = struct.unpack_from("<Q", stream)
        if length != SIZE:
            return [*answers, None], True
        if len(stream) < 8 + SIZE:
            break
        call, stream = stream[8 : 8 + SIZE], stream[8 + SIZE :]
        mask, (index,) = call[:4], struct.unpack("<q", call[4:])
        if max(mask) > 1 or not -5 <= index < 5:
            answers.append(None)
            continue
        flipped = bytes(1 - value for value in mask)
        answers.append(b"\0" + flipped + struct.pack("<i", range(7, 12)[index]))
    return answers, False


def exchange(wire: Wire, pieces: Sequence[bytes]) -> tuple[list[bytes | None], bool]:
    """Sends the pieces and reads until the server has said all; whether it closed by itself."""
    stream = b"".join(pieces)
    answers, ends = expected_answers(stream)
    with suppress(BrokenPipeError, ConnectionResetError):
        for piece in pieces:
            wire.socket.sendall(piece)
    found: list[bytes | None] = []
    for _ in answers:
        answer = wire.frame()
        found.append(None if answer[0] else answer)
    return found, ends and wire.at_end()


good_calls = st.tuples(st.lists(st.integers(0, 1), min_size=4, max_size=4), st.integers(-5, 4)).map(
    lambda call: struct.pack("<Q", SIZE) + bytes(call[0]) + struct.pack("<q", call[1])
)
any_calls = st.binary(min_size=SIZE, max_size=SIZE).map(lambda call: struct.pack("<Q", SIZE) + call)
any_frames = st.tuples(
    st.one_of(st.integers(0, 40), st.sampled_from([2**31, 2**32 + SIZE, 2**63, 2**64 - 1])),
    st.binary(max_size=40),
).map(lambda frame: struct.pack("<Q", frame[0]) + frame[1])
streams = st.lists(
    st.one_of(good_calls, good_calls, good_calls, any_calls, any_frames, st.binary(max_size=20)),
    max_size=12,
).map(b"".join)


@given(stream=streams, cuts=st.lists(st.integers(0, 200), max_size=8))
@settings(max_examples=50)
def test_any_stream_in_any_pieces(live: Live, stream: bytes, cuts: list[int]) -> None:
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in itertools.pairwise(places)]
    answers, ends = expected_answers(stream)
    with live.connect() as wire:
        assert exchange(wire, pieces) == (answers, ends)
    with live.connect() as wire:
        call = bytes([0, 1, 0, 1]) + struct.pack("<q", 2)
        assert wire.call(call) == b"\0\1\0\1\0" + struct.pack("<i", 9)


def _misbehave(path: str, generator: random.Random, end: float) -> None:
    """Connects, sends, sends half, stalls and vanishes, at random."""
    while time.monotonic() < end:
        with suppress(OSError), Wire(path, 1) as wire:
            for _ in range(generator.randrange(6)):
                kind = generator.randrange(6)
                if kind == 0:
                    wire.socket.sendall(generator.randbytes(generator.randrange(60)))
                elif kind == 1:
                    whole = struct.pack("<Q", SIZE) + generator.randbytes(SIZE)
                    wire.socket.sendall(whole[: generator.randrange(20)])
                elif kind == 2:
                    wire.socket.sendall((struct.pack("<Q", SIZE) + b"\0" * SIZE) * 50)
                elif kind == 3:
                    time.sleep(generator.random() / 50)
                elif kind == 4:
                    wire.socket.recv(100)
                else:
                    wire.send(generator.randbytes(generator.randrange(30)))


def _behave(path: str, generator: random.Random, end: float, wrong: list[bytes]) -> None:
    while time.monotonic() < end:
        with Wire(path) as wire:
            for _ in range(generator.randrange(1, 40)):
                mask = bytes(generator.randrange(2) for _ in range(4))
                index = generator.randrange(-5, 5)
                answer = wire.call(mask + struct.pack("<q", index))
                flipped = bytes(1 - value for value in mask)
                if answer != b"\0" + flipped + struct.pack("<i", range(7, 12)[index]):
                    wrong.append(answer)


@pytest.mark.parametrize("sizes", [[1, 2, 3], [3]])
def test_a_storm(sizes: list[int]) -> None:
    """`SEXPGPU_STORM` is how many seconds it lasts."""
    seconds = float(os.environ.get("SEXPGPU_STORM", "1.5"))
    generator = random.Random(3)
    with serving(_hosted(), limit=3, sizes=sizes) as live:
        end = time.monotonic() + seconds
        wrong: list[bytes] = []
        threads = [
            *(
                threading.Thread(target=_misbehave, args=(live.path, random.Random(i), end))
                for i in range(12)
            ),
            *(
                threading.Thread(target=_behave, args=(live.path, generator, end, wrong))
                for _ in range(3)
            ),
        ]
        files = len(os.listdir("/proc/self/fd"))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: not live.server.connections)
        assert not wrong
        assert len(os.listdir("/proc/self/fd")) <= files
