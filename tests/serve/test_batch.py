"""Large calls and answers: never copied a second time, right for whoever reads slowly."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sexpgpu.serve import Client
from sexpgpu.serve.batch import Pool
from sexpgpu.serve.engine import Engine
from sexpgpu.serve.hosted import Limits
from sexpgpu.serve.session import Device, open_session
from support.serving import Live, declare, identity, onnx_hosted, serving

SIZE = 1 << 18
"""Elements of f32, so that a record is 1 MiB."""


def _records(count: int) -> list[Any]:
    return [np.full((1, SIZE), number, np.float32) for number in range(count)]


#: Calls that wait are run in parts.
PARTED = [1, 2, 4], (0, 1, 1, 2, 2)


@pytest.mark.parametrize(("sizes", "together"), [([1, 2, 3, 4], ()), ([4], ()), ([1], ()), PARTED])
def test_large_calls_of_many_clients(sizes: Sequence[int], together: Sequence[int]) -> None:
    hosted = onnx_hosted(
        declare({"x": ("f32", [SIZE])}), declare({"y": ("f32", [SIZE])}), "y = Neg (x)"
    )
    wrong = []

    def drive(live: Live, number: int) -> None:
        with Client(live.path) as client:
            for step in range(3):
                record = np.full((1, SIZE), number * 10 + step, np.float32)
                if client.call(record).tobytes() != (-record).tobytes():
                    wrong.append(number)

    with serving(hosted, max(sizes), sizes, together) as live:
        threads = [threading.Thread(target=drive, args=(live, i)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_whoever_reads_a_large_answer_slowly_gets_it_whole() -> None:
    """Others are answered meanwhile, and their answers do not come to lie over it."""
    with serving(identity("f32", [SIZE])) as live:
        records = _records(6)
        slow = [live.connect() for _ in records]
        for wire, record in zip(slow, records, strict=True):
            wire.send(record.tobytes())
        time.sleep(0.05)
        with Client(live.path) as client:
            for number in range(100, 110):
                record = np.full((1, SIZE), number, np.float32)
                assert client.call(record).tobytes() == record.tobytes()
        for wire, record in zip(slow, records, strict=True):
            assert wire.frame() == b"\0" + record.tobytes()
            wire.close()


@pytest.mark.parametrize(("sizes", "together"), [([1, 2, 3, 4], ()), PARTED])
def test_small_calls_with_large_answers_leave_their_buffers_to_slow_readers(
    sizes: Sequence[int], together: Sequence[int]
) -> None:
    hosted = onnx_hosted(
        declare({"x": ("f32", [1])}),
        declare({"y": ("f32", [SIZE])}),
        f"one = Constant <value_ints = [1]> ()\nsize = Constant <value_ints = [{SIZE}]> ()\n"
        "n = Shape <end = 1> (x)\nshape = Concat <axis = 0> (n, size)\ny = Expand (x, shape)",
    )
    with serving(hosted, 4, sizes, together) as live:
        slow = [live.connect() for _ in range(10)]
        for number, wire in enumerate(slow):
            wire.send(struct.pack("<f", number))
        time.sleep(0.05)
        with Client(live.path) as client:
            for number in range(100, 110):
                assert (client.call([number]) == number).all()
        for number, wire in enumerate(slow):
            assert wire.frame() == b"\0" + np.full(SIZE, number, np.float32).tobytes()
        vanishing = [live.connect() for _ in range(10)]
        for wire in vanishing:
            wire.send(struct.pack("<f", 7))
        time.sleep(0.05)
        for wire in (*slow, *vanishing):
            wire.close()
        with Client(live.path) as client:
            assert (client.call([5]) == 5).all()


def test_small_calls_that_are_run_in_parts() -> None:
    """Who waits on moves to the first rows; bad calls among them are refused."""
    hosted = onnx_hosted(
        declare({"x": ("i32", [1])}),
        declare({"y": ("i32", [1])}),
        "y = Neg (x)",
        {"x": Limits(0, 1000)},
    )
    values = [5, 1000, 7, 8, 9, 1000, 11]
    with serving(hosted, 8, [1, 2, 4, 8], (0, 1, 2, 2, 2, 4, 4, 4, 4)) as live:
        wires = [live.connect() for _ in values]
        for _ in range(20):
            for wire, value in zip(wires, values, strict=True):
                wire.send(struct.pack("<i", value))
            for wire, value in zip(wires, values, strict=True):
                answer = wire.frame()
                good = answer == b"\0" + struct.pack("<i", -value)
                assert good if value < 1000 else answer[0] == 1
        for wire in wires:
            wire.close()
        assert live.server.calls == 100


def test_a_large_frame_may_be_split_anywhere() -> None:
    record = np.arange(SIZE, dtype=np.float32)
    message = struct.pack("<Q", record.nbytes) + record.tobytes()
    with serving(identity("f32", [SIZE])) as live, live.connect() as wire:
        for place in (1, 7, 8, 9, 100_001, len(message) - 1):
            wire.socket.sendall(message[:place])
            time.sleep(0.01)
            wire.socket.sendall(message[place:])
            assert wire.frame() == b"\0" + record.tobytes()


def test_a_bad_large_call_is_refused_and_the_connection_goes_on() -> None:
    good = np.zeros(SIZE, np.uint8)
    bad = good.copy()
    bad[-1] = 7
    with serving(identity("bool", [SIZE + 1])) as live, live.connect() as wire:
        for _ in range(3):
            answer = wire.call(bad.tobytes() + b"\0")
            assert answer == b"\1`x`: a bool is 0 or 1, 7 came"
            assert wire.call(good.tobytes() + b"\1") == b"\0" + good.tobytes() + b"\1"


def test_whoever_vanishes_in_a_large_call_gives_its_buffers_back() -> None:
    with serving(identity("f32", [SIZE])) as live:
        for _ in range(20):
            wire = live.connect()
            wire.socket.sendall(struct.pack("<Q", SIZE * 4) + b"\0" * 100_000)
            wire.close()
        with Client(live.path) as client:
            record = np.ones((1, SIZE), np.float32)
            assert client.call(record).tobytes() == record.tobytes()
        assert len(live.server.connections) <= 1


def test_a_pool_keeps_what_it_is_told_and_gives_it_again() -> None:
    hosted = identity("f32", [4])
    engine = Engine(open_session(hosted, Device("cpu"), 1), hosted, 2)
    pool = Pool(engine, 2, 1, engine.buffers)
    first, second = pool.take(), pool.take()
    assert first.buffers is engine.buffers
    assert second.buffers is not engine.buffers
    first.users += 1
    first.release()
    assert first.users == 1
    second.release()
    first.release()
    assert pool.take() is second
    assert pool.take() is not first


_MEMORY = """
import sys
from support.serving import declare, onnx_hosted, serving
size = 1 << 28
kind = sys.argv[1]
if kind == "call":
    x, y = [size], []
    body = "axes = Constant <value_ints = [1]> () y = ReduceMax <keepdims = 0> (x, axes)"
else:
    x, y = [1], [size]
    body = f\"\"\"size = Constant <value_ints = [{size}]> () n = Shape <end = 1> (x)
        shape = Concat <axis = 0> (n, size) y = Expand (x, shape)\"\"\"
hosted = onnx_hosted(declare({"x": ("f32", x)}), declare({"y": ("f32", y)}), body)
def peak():
    # Not ru_maxrss, which begins with what the parent had.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
with serving(hosted, limit=1) as live:
    before = peak()
    print(live.path, flush=True)
    sys.stdin.readline()
    print((peak() - before) * 1024, flush=True)
"""

GIB = 1 << 30


@pytest.mark.parametrize("kind", ["call", "answer"])
def test_a_gibibyte_takes_a_gibibyte(kind: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _MEMORY, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        for _ in range(2):
            _exchange(path, kind)
        process.stdin.write("\n")
        process.stdin.flush()
        grown = int(process.stdout.readline())
    assert 0.9 * GIB < grown < 1.15 * GIB


def _exchange(path: str, kind: str) -> None:
    """A call with its largest element in the middle, or one whose answer is read slowly."""
    piece = np.zeros(1 << 22, np.float32)
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(60)
        wire.connect(path)
        (length,) = struct.unpack("<Q", wire.recv(8, socket.MSG_WAITALL))
        wire.recv(length, socket.MSG_WAITALL)
        if kind == "call":
            wire.sendall(struct.pack("<Q", GIB))
            for number in range(64):
                piece[5] = 7 if number == 31 else 0
                wire.sendall(piece.data)
            assert wire.recv(13, socket.MSG_WAITALL)[9:] == struct.pack("<f", 7)
            return
        wire.sendall(struct.pack("<Qf", 4, 2.5))
        head = wire.recv(9, socket.MSG_WAITALL)
        assert head == struct.pack("<QB", GIB + 1, 0)
        time.sleep(0.2)
        for _ in range(64):
            view = memoryview(piece.data).cast("B")
            while view:
                view = view[wire.recv_into(view) :]
            assert piece[0] == piece[-1] == 2.5
