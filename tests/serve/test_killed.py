"""`kill -9` of the server, at any moment: what its clients see, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import AsyncClient, Client
from sexpgpu.serve.kept import _Entry
from support.commands import command, environment
from support.exports import export
from support.serving import serve_process, start, write_onnx, write_slow


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "quick.onnx"
    return write_onnx(path, "float[N, 2000] x", "float[N, 2000] y", "y = Neg (x)")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_slow(tmp_path_factory.mktemp("model") / "slow.onnx")


def _call(path: str, x: np.ndarray) -> None:
    with Client(path) as client:
        while True:
            assert client.call(x).tobytes() == (-x).tobytes()


def _call_many(path: str, x: np.ndarray) -> None:
    with Client(path, timeout=60) as client:
        while True:
            for answer in client.call_many([x] * 50):
                assert answer.tobytes() == (-x).tobytes()


def _call_async(path: str, x: np.ndarray) -> None:
    async def call() -> None:
        async with AsyncClient(path) as client:
            while True:
                assert (await client.call(x)).tobytes() == (-x).tobytes()

    asyncio.run(call())


def _call_many_async(path: str, x: np.ndarray) -> None:
    async def call() -> None:
        async with AsyncClient(path) as client:
            while True:
                for answer in await client.call_many([x] * 50):
                    assert answer.tobytes() == (-x).tobytes()

    asyncio.run(call())


def _connect(path: str, x: np.ndarray) -> None:
    while True:
        Client(path).close()


CALLERS: list[Callable[[str, np.ndarray], None]] = [
    _call,
    _call_many,
    _call_async,
    _call_many_async,
    _connect,
]


@pytest.mark.parametrize("seed", range(4))
def test_clients_see_that_the_server_was_killed(quick: Path, tmp_path: Path, seed: int) -> None:
    """Each answer until then is right, and then there is an error in a sentence."""
    ends: list[BaseException] = []

    def drive(caller: Callable[[str, np.ndarray], None], number: int) -> None:
        try:
            caller(str(tmp_path / "s"), np.full((1, 2000), number, np.float32))
        except BaseException as error:
            ends.append(error)

    with serve_process(quick, tmp_path / "s", "--device=cpu") as server:
        threads = [
            threading.Thread(target=drive, args=(caller, number), daemon=True)
            for number, caller in enumerate(CALLERS * 2)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.1 + random.Random(seed).random() / 5)
        assert not ends, ends[:3]
        server.process.kill()
        server.process.wait()
        for thread in threads:
            thread.join(60)
    assert len(ends) == len(threads)
    for error in ends:
        assert isinstance(error, SexpgpuError), repr(error)
        assert error.code == "E-CLIENT-001"
        assert error.message.startswith(("the connection to the server has", "no server answers"))
        assert error.came in (
            "the server closed it",
            "Connection reset by peer",
            "Broken pipe",
            "Connection refused",
        )


def test_the_command_sees_that_the_server_was_killed(slow: Path, tmp_path: Path) -> None:
    with serve_process(slow, tmp_path / "s", "--device=cpu") as server:
        calling = start("call", server.path, "--input", "milliseconds=[60000]", "--json")
        _wait_until(lambda: _connections(server.process.pid) == 1)
        # It is not known when the call has come: the end is the same before.
        time.sleep(0.1)
        server.process.kill()
        out, errors = calling.communicate(timeout=60)
    assert calling.returncode == 1
    assert errors.startswith("error[E-CLIENT-001]: the connection to the server has ended")
    assert '"code": "E-CLIENT-001"' in out
    calling = start("call", server.path, "--input", "milliseconds=[1]")
    out, errors = calling.communicate(timeout=60)
    assert (calling.returncode, out) == (1, "")
    assert errors.startswith("error[E-CLIENT-001]: no server answers at")


def _connections(process: int) -> int:
    """How many clients a server has taken."""
    sockets = 0
    for number in os.listdir(f"/proc/{process}/fd"):
        with_name = f"/proc/{process}/fd/{number}"
        try:
            sockets += os.readlink(with_name).startswith("socket:")
        except FileNotFoundError:
            continue
    # The pair that signals come by, and the one that listens.
    return sockets - 3


def _wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = """
(def record (fields :x (list f32 4)))
(defmodel net () (parts l (linear 4 3)) (apply (x) (l x)))
(def model (net))
"""
    return export(program, tmp_path_factory.mktemp("net"), "out").directory


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _check_entries(cache: Path) -> int:
    """Each entry of the cache is whole; how many there are."""
    entries = [path for path in cache.glob("*/*") if not path.name.startswith(".")]
    for path in entries:
        msgspec.msgpack.decode(path.read_bytes(), type=_Entry)
    return len(entries)


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "sockets"
    folder.mkdir()
    return folder


def _serves(operand: Path, path: Path) -> None:
    with serve_process(operand, path, "--device=cpu") as server:
        with Client(server.path) as client:
            assert client.call(np.zeros((1, 4), np.float32)).shape == (1, 3)
        assert [found.name for found in path.parent.iterdir()] == [path.name]
        assert server.stop()[0] == 128 + signal.SIGTERM
    assert list(path.parent.iterdir()) == []


def test_a_server_that_is_killed_while_it_starts(
    exported: Path, cache: Path, sockets: Path
) -> None:
    begin = time.monotonic()
    _serves(exported, sockets / "s")
    usual = time.monotonic() - begin
    for path in cache.glob("*/*"):
        path.unlink()
    draw = random.Random(3)
    for _ in range(8):
        process = start("serve", str(exported), "--socket", str(sockets / "s"), "--device=cpu")
        time.sleep(draw.random() * usual)
        process.kill()
        process.communicate()
        assert {path.name for path in sockets.iterdir()} <= {"s", ".s.new"}
        _check_entries(cache)
    _serves(exported, sockets / "s")
    assert _check_entries(cache) == len(list(cache.glob("*/*"))) == 2


#: Ends the process when it would give a file or socket its name, the nth time.
_KILL = """
import os, signal
renamed = []
def rename(*paths, **folders):
    renamed.append(paths)
    if len(renamed) == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    os.replace(*paths, **folders)
os.rename = rename
"""


@pytest.mark.parametrize(("number", "left"), [(1, "hosted/.*"), (2, "verdicts/.*"), (3, None)])
def test_what_was_about_to_get_its_name_goes_with_the_next(
    exported: Path, cache: Path, sockets: Path, number: int, left: str | None
) -> None:
    arguments = ["serve", str(exported), "--socket", str(sockets / "s"), "--device=cpu"]
    killed = subprocess.run(
        command(*arguments, before=_KILL.format(number=number)),
        env=environment(),
        capture_output=True,
    )
    assert (killed.returncode, killed.stdout, killed.stderr) == (-signal.SIGKILL, b"", b"")
    if left is None:
        assert [path.name for path in sockets.iterdir()] == [".s.new"]
    else:
        assert [path.name[0] for path in cache.glob(left)] == ["."]
    assert _check_entries(cache) == number - 1
    _serves(exported, sockets / "s")
    assert _check_entries(cache) == len(list(cache.glob("*/*"))) == 2


def test_a_server_that_is_killed_under_load_leaves_its_socket_to_the_next(
    quick: Path, sockets: Path
) -> None:
    """Those who are connected to the one that was killed do not reach the other."""
    path = str(sockets / "s")
    call = struct.pack("<Q", 8000) + bytes(8000)
    old: list[socket.socket] = []
    for _ in range(4):
        with serve_process(quick, path, "--device=cpu") as server:
            for wire in old:
                with pytest.raises((ConnectionResetError, BrokenPipeError)):
                    wire.sendall(call * 1000)
            old = [server.connect().socket for _ in range(5)]
            for wire in old:
                wire.sendall(call)
            assert len(old[0].recv(9, socket.MSG_WAITALL)) == 9
            server.process.kill()
            server.process.wait()
            assert [found.name for found in sockets.iterdir()] == ["s"]


def test_servers_that_start_at_once_on_one_cache(
    exported: Path, cache: Path, sockets: Path
) -> None:
    names = [sockets / str(number) for number in range(4)]
    processes = [
        start("serve", str(exported), "--socket", str(name), "--device=cpu") for name in names
    ]
    try:
        answers = set()
        for process, name in zip(processes, names, strict=True):
            assert process.stdout is not None
            assert process.stdout.readline().startswith("serving ")
            with Client(name) as client:
                answers.add(client.call(np.ones((1, 4), np.float32)).tobytes())
        assert len(answers) == 1
        assert _check_entries(cache) == len(list(cache.glob("*/*"))) == 2
    finally:
        for process in processes:
            process.terminate()
            assert "Traceback" not in process.communicate()[1]
    assert list(sockets.iterdir()) == []
