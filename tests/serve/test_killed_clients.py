"""`kill -9` of clients, whatever they are at: the others' answers are right, and nothing stays."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.serve import Client
from sexpgpu.tools.storm import _SLACK, Footprint, settled
from support.serving import Process, serve_process, write_onnx

#: A client that does one thing for ever; it says when it has begun.
_CLIENT = """
import random, socket, struct, sys, time
path, deed, size, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
wire = socket.socket(socket.AF_UNIX)
wire.connect(path)
wire.recv(struct.unpack("<Q", wire.recv(8, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)
frame = struct.pack("<Q", size) + bytes(size)
draw = random.Random(seed)
print(flush=True)
while True:
    if deed == "calls":
        wire.sendall(frame)
        wire.recv(9 + size, socket.MSG_WAITALL)
    elif deed == "sends in pieces":
        cut = draw.randrange(1, len(frame))
        wire.sendall(frame[:cut])
        time.sleep(draw.random() / 50)
        wire.sendall(frame[cut:])
        wire.recv(9 + size, socket.MSG_WAITALL)
    elif deed == "reads in pieces":
        wire.sendall(frame)
        left = 9 + size
        while left:
            left -= len(wire.recv(draw.randrange(1, left + 1)))
            time.sleep(draw.random() / 200)
    else:
        wire.sendall(frame)  # and reads nothing
"""
DEEDS = ["calls", "sends in pieces", "reads in pieces", "reads nothing"]


@pytest.mark.parametrize("width", [64, 100_000])
def test_clients_that_are_killed_harm_nobody(tmp_path: Path, width: int) -> None:
    """With calls that are received in place, and such as have buffers of their own."""
    path = write_onnx(
        tmp_path / "m.onnx", f"float[N,{width}] x", f"float[N,{width}] y", "y = Neg (x)"
    )
    answered = [0]
    wrong: list[object] = []

    def drive(server: Process, number: int, stop: threading.Event) -> None:
        generator = np.random.default_rng(number)
        try:
            with Client(server.path, timeout=60) as client:
                while not stop.is_set():
                    x = generator.standard_normal((1, width)).astype(np.float32)
                    if client.call(x).tobytes() != (-x).tobytes():
                        wrong.append(number)
                    answered[0] += 1
        except Exception as error:
            wrong.append(error)

    def gust(server: Process, rounds: int, seed: int) -> None:
        stop = threading.Event()
        threads = [threading.Thread(target=drive, args=(server, i, stop)) for i in range(3)]
        for thread in threads:
            thread.start()
        draw = random.Random(seed)
        for _ in range(rounds):
            _start_and_kill(server.path, 4 * width, draw)
        stop.set()
        for thread in threads:
            thread.join()

    with serve_process(path, tmp_path / "s", "--device=cpu") as server:
        alone = Footprint.of(server.process.pid)
        gust(server, 2, seed=1)
        before = settled(server.process.pid, alone)
        assert answered[0]
        gust(server, 6, seed=2)
        after = settled(server.process.pid, alone)
        assert not wrong, wrong[:3]
        status, errors = server.stop()
    assert status == 128 + signal.SIGTERM
    assert "Traceback" not in errors
    _check_footprints(before, after, 16 * 4 * width * 8)


def _start_and_kill(path: str, size: int, draw: random.Random) -> None:
    """Two clients of each kind, which are killed at moments of their own."""
    clients = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", _CLIENT, path, deed, str(size), str(draw.random())[2:8]],
            stdout=subprocess.PIPE,
        )
        for deed in DEEDS * 2
    ]
    for client in clients:
        assert client.stdout is not None
        client.stdout.readline()
    draw.shuffle(clients)
    for client in clients:
        time.sleep(draw.random() / 50)
        assert client.poll() is None
        client.kill()
        client.communicate()


def _check_footprints(before: Footprint, after: Footprint, buffers: int) -> None:
    assert (after.descriptors, after.threads) == (before.descriptors, before.threads)
    assert after.memory < before.memory * 1.05 + _SLACK + buffers
