"""Servers that are none of ours, or fail: nothing that they send costs memory or a traceback."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import Client
from support.serving import PATIENCE


def _error(action: Callable[[], Any]) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        action()
    return caught.value


@contextmanager
def impostor(tmp_path: Path, *replies: bytes) -> Iterator[str]:
    """Sends the first of these on connecting, and the others after whatever comes."""
    path = str(tmp_path / "impostor.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            for number, reply in enumerate(replies):
                if number and not connection.recv(1 << 16):
                    return
                connection.sendall(reply)
            if replies[-1] != b"":
                connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                connection.recv(1 << 16)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield path
    finally:
        listener.close()


def _frame(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _greeting(*outputs: dict[str, Any]) -> bytes:
    inputs = [{"name": "x", "shape": [1], "dtype": "i32"}]
    return _frame(json.dumps({"inputs": inputs, "outputs": list(outputs)}).encode())


@pytest.mark.parametrize(
    "reply",
    [
        struct.pack("<Q", 2**63),
        struct.pack("<Q", (1 << 24) + 1),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        _frame(b""),
        _frame(b"\xff\xfe"),
        _frame(b"[]"),
        _frame(b"{}"),
        _frame(b"[" * 100_000),
        _frame(b'{"inputs": 3, "outputs": []}'),
        _frame(b'{"inputs": [], "outputs": [7]}'),
        _greeting({"name": "y", "shape": [-1], "dtype": "f32"}),
        _greeting({"name": "y", "shape": [1.5], "dtype": "f32"}),
        _greeting({"name": "y", "shape": [True], "dtype": "f32"}),
        _greeting({"name": "y", "shape": 3, "dtype": "f32"}),
        _greeting({"name": "y", "shape": [3], "dtype": "f16"}),
        _greeting({"name": "y", "shape": [3], "dtype": []}),
        _greeting({"name": 7, "shape": [3], "dtype": "f32"}),
        _greeting({"shape": [3], "dtype": "f32"}),
    ],
)
def test_a_greeting_that_is_none(tmp_path: Path, reply: bytes) -> None:
    with impostor(tmp_path, reply) as path:
        assert _error(lambda: Client(path, timeout=PATIENCE)).code == "E-CLIENT-003"


OUTPUT = {"name": "y", "shape": [1, 2], "dtype": "f32"}


@pytest.mark.parametrize(
    "reply",
    [
        _frame(b"\0" * 8),
        _frame(b"\0" * 10),
        _frame(b"\2" + b"\0" * 8),
        struct.pack("<Q", 2**63) + b"\0",
        struct.pack("<Q", 2**63) + b"\1",
        struct.pack("<Q", 0) + b"\1",
        struct.pack("<Q", 1) + b"\1toolong!",
    ],
)
def test_an_answer_that_is_none(tmp_path: Path, reply: bytes) -> None:
    with impostor(tmp_path, _greeting(OUTPUT), reply) as path:
        client = Client(path, timeout=PATIENCE)
        assert _error(lambda: client.call(1)).code == "E-CLIENT-003"
        assert _error(lambda: client.call(1)).code == "E-CLIENT-001"


def test_an_answer_for_which_there_is_no_memory(tmp_path: Path) -> None:
    output = {"name": "y", "shape": [1 << 31, 1 << 31], "dtype": "f32"}
    with impostor(tmp_path, _greeting(output), b"") as path, Client(path) as client:
        assert _error(lambda: client.call(1)).code == "E-CLIENT-003"


@pytest.mark.parametrize("reply", [b"\1", struct.pack("<Q", 9)[:7], _frame(b"\0" * 9)[:12]])
def test_a_server_that_goes_away_while_it_answers(tmp_path: Path, reply: bytes) -> None:
    with impostor(tmp_path, _greeting(OUTPUT), reply) as path, Client(path) as client:
        error = _error(lambda: client.call(1))
        assert (error.code, error.came) == ("E-CLIENT-001", "the server closed it")


def test_a_timeout_ends_the_client(tmp_path: Path) -> None:
    with impostor(tmp_path, _greeting(OUTPUT), b"") as path:
        client = Client(path)
        client.timeout = 0.2
        error = _error(lambda: client.call(1))
        assert (error.code, error.came) == ("E-CLIENT-001", "no answer came in time")
        assert _error(lambda: client.call(1)).came == "it was closed before"


def test_a_timeout_of_the_greeting(tmp_path: Path) -> None:
    with impostor(tmp_path, b"") as path:
        assert _error(lambda: Client(path, timeout=0.2)).came == "no answer came in time"


def test_a_timeout_of_connecting(tmp_path: Path) -> None:
    path = str(tmp_path / "full.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    queued = socket.socket(socket.AF_UNIX)
    queued.connect(path)
    error = _error(lambda: Client(path, timeout=0.2))
    assert (error.code, error.came) == ("E-CLIENT-001", "its queue is full")


def test_an_error_that_comes_while_a_call_is_sent(tmp_path: Path) -> None:
    """A server that closes after its words is heard, although sending fails."""
    path = str(tmp_path / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    spec = {"name": "x", "shape": [1, 1 << 22], "dtype": "f32"}
    greeting = _frame(json.dumps({"inputs": [spec], "outputs": []}).encode())

    def serve() -> None:
        connection, _ = listener.accept()
        connection.sendall(greeting)
        connection.recv(100)
        connection.sendall(_frame(b"\1no more room"))
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    with Client(path) as client:
        error = _error(lambda: client.call(np.zeros((1, 1 << 22), np.float32)))
        assert (error.code, error.message) == ("E-CLIENT-002", "no more room")
