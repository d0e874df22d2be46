"""The client for asyncio: what `test_client.py` sees of the other, and waiting side by side."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import AsyncClient
from sexpgpu.serve.hosted import Limits
from support.serving import PATIENCE, Live, declare, identity, onnx_hosted, serving

T = TypeVar("T")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """`x` of [1, 2] f32 and `at` of [1] i32, which has 8 positions; both come back changed."""
    hosted = onnx_hosted(
        declare({"x": ("f32", [2]), "at": ("i32", [])}),
        declare({"y": ("f32", [2]), "p": ("i32", [])}),
        "y = Neg (x)\np = Neg (at)",
        {"at": Limits(0, 8)},
    )
    with serving(hosted) as running:
        yield running


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


def error_of(coroutine: Coroutine[Any, Any, Any]) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        run(coroutine)
    return caught.value


def test_a_call(live: Live) -> None:
    async def main() -> None:
        async with AsyncClient(live.path) as client:
            assert [spec.name for spec in client.inputs] == ["x", "at"]
            assert [spec.name for spec in client.outputs] == ["y", "p"]
            assert client.about["precision"] == "f32"
            answer = await client.call([1, 2], at=3)
            assert answer["y"].tolist() == [[-1, -2]]
            assert (await client([1, 2], 3))["p"].tolist() == [-3]

    run(main())


def test_connect_opens_it_at_once(live: Live) -> None:
    async def main() -> None:
        client = await AsyncClient.connect(live.path, timeout=PATIENCE)
        async with client:
            assert (await client.call([0, 0], 1))["p"].tolist() == [-1]

    run(main())


def test_calls_on_one_client_wait_for_each_other(live: Live) -> None:
    async def main() -> None:
        async with AsyncClient(live.path) as client:
            answers = await asyncio.gather(*(client.call([i, i], i % 8) for i in range(100)))
        assert [a["y"][0, 0] for a in answers] == [-i for i in range(100)]

    run(main())


def test_clients_of_one_loop_are_served_side_by_side(live: Live) -> None:
    async def drive(number: int) -> None:
        async with AsyncClient(live.path) as client:
            for i in range(10):
                answer = await client.call([number, i], 0)
                assert answer["y"].tolist() == [[-number, -i]]

    async def main() -> None:
        await asyncio.gather(*(drive(i) for i in range(30)))

    run(main())


def test_many_records(live: Live) -> None:
    records = [{"x": [i, i], "at": i % 8} for i in range(1000)]

    async def main() -> None:
        async with AsyncClient(live.path) as client:
            answers = await client.call_many(records)
            assert [a["p"][0] for a in answers] == [-(i % 8) for i in range(1000)]
            assert await client.call_many([]) == []
            mixed = await client.call_many([([0, 0], 1), ([0, 0], 9)], return_exceptions=True)
            assert mixed[0]["p"].tolist() == [-1]
            assert isinstance(mixed[1], SexpgpuError)
            with pytest.raises(SexpgpuError, match="9 is outside 0 to 7") as caught:
                await client.call_many([([0, 0], 1), ([0, 0], 9)])
            assert "record 1 of 2" in caught.value.notes[0]

    run(main())


def test_large_records_neither_side_waiting_for_the_other() -> None:
    records = [np.full((1, 1 << 19), i, np.float32) for i in range(6)]

    async def main(path: str) -> None:
        async with AsyncClient(path, timeout=PATIENCE) as client:
            answer = await client.call(records[1])
            assert answer.tobytes() == records[1].tobytes()
            for i, answer in enumerate(await client.call_many(records)):
                assert answer.tobytes() == records[i].tobytes()

    with serving(identity("f32", [1 << 19])) as running:
        run(main(running.path))


def test_errors_that_leave_it_usable(live: Live) -> None:
    async def main() -> None:
        async with AsyncClient(live.path) as client:
            with pytest.raises(SexpgpuError) as caught:
                await client.call([0, 0, 0], 1)
            assert caught.value.code == "E-CALL-010"
            with pytest.raises(SexpgpuError) as caught:
                await client.call([0, 0], 8)
            assert caught.value.code == "E-CLIENT-002"
            assert caught.value.message == "`at`: 8 is outside 0 to 7"
            assert (await client.call([0, 0], 7))["p"].tolist() == [-7]

    run(main())


def test_no_server(tmp_path: Path) -> None:
    error = error_of(AsyncClient.connect(tmp_path / "none"))
    assert (error.code, error.came) == ("E-CLIENT-001", "No such file or directory")
    assert error_of(AsyncClient.connect(str(tmp_path / ("x" * 200)))).code == "E-CLIENT-001"


def test_one_that_is_not_open(live: Live) -> None:
    async def early() -> None:
        await AsyncClient(live.path).call([0, 0], 0)

    async def late() -> None:
        async with AsyncClient(live.path) as client:
            pass
        await client.call([0, 0], 0)

    assert "it was not opened" in (error_of(early()).came or "")
    assert error_of(late()).came == "it was closed before"


def _silent(folder: Path, greeting: bytes = b"") -> str:
    """A path where somebody listens, sends a greeting and nothing more."""
    path = str(folder / "silent")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(4)

    def serve() -> None:
        connection, _ = listener.accept()
        connection.sendall(greeting)
        with suppress(ConnectionResetError):
            while connection.recv(1 << 16):
                pass

    threading.Thread(target=serve, daemon=True).start()
    return path


def _greeting() -> bytes:
    spec = {"name": "x", "shape": [1, 1 << 20], "dtype": "f32"}
    text = json.dumps({"inputs": [spec], "outputs": [spec]}).encode()
    return struct.pack("<Q", len(text)) + text


def test_a_timeout_ends_it(tmp_path: Path) -> None:
    async def main() -> None:
        client = await AsyncClient.connect(_silent(tmp_path, _greeting()))
        client.timeout = 0.2
        for reason in ("no answer came in time", "it was closed before"):
            with pytest.raises(SexpgpuError) as caught:
                await client.call(np.zeros((1, 1 << 20), np.float32))
            assert (caught.value.code, caught.value.came) == ("E-CLIENT-001", reason)

    run(main())


def test_a_timeout_of_the_greeting(tmp_path: Path) -> None:
    error = error_of(AsyncClient.connect(_silent(tmp_path), timeout=0.2))
    assert (error.code, error.came) == ("E-CLIENT-001", "no answer came in time")


def test_a_queue_that_is_full_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "full")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(0)
    queued = socket.socket(socket.AF_UNIX)
    queued.connect(path)
    begin = time.monotonic()
    assert error_of(AsyncClient.connect(path, timeout=0.2)).code == "E-CLIENT-001"
    assert time.monotonic() - begin > 0.15


def test_a_call_that_is_cancelled_ends_it(tmp_path: Path) -> None:
    async def main() -> None:
        client = await AsyncClient.connect(_silent(tmp_path, _greeting()))
        array = np.zeros((1, 1 << 20), np.float32)
        for calling in (client.call(array), client.call_many([array, array])):
            task = asyncio.ensure_future(calling)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, SexpgpuError)):
                await task
        with pytest.raises(SexpgpuError, match="has ended"):
            await client.call(array)

    run(main())


def test_a_server_that_does_not_speak_the_protocol(tmp_path: Path) -> None:
    path = _silent(tmp_path, b"HTTP/1.1 400 Bad Request\r\n")
    assert error_of(AsyncClient.connect(path)).code == "E-CLIENT-003"
