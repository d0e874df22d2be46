"""The load generator against the echo server and against HTTP, and what it takes for an error."""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sexpgpu.tools.bench.client import Caller, compile_c
from sexpgpu.tools.bench.processes import running
from support.serving import wait_until

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

_ANSWER = struct.pack("<Q", 5) + b"\0four"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs are, a call and its answer."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "call").write_bytes(struct.pack("<Q", 4) + b"call")
    (folder / "answer").write_bytes(_ANSWER)
    return folder


@pytest.fixture
def echo(folder: Path) -> Iterator[Caller]:
    path = folder / "echo.sock"
    path.unlink(missing_ok=True)
    command = [str(compile_c("echo", folder)), str(path), "12", str(folder / "answer"), "1000"]
    with running(command):
        wait_until(path.exists)
        client = compile_c("client", folder)
        yield Caller(client, f"unix={path}", folder / "call", folder / "answer")


@pytest.mark.parametrize("clients", [1, 3])
def test_it_counts_calls_and_their_latencies(echo: Caller, clients: int) -> None:
    load = echo.load(clients, 0.2)
    assert load.errors == 0
    assert load.calls > clients
    assert load.seconds > 0.19
    # The echo is busy for a microsecond with each.
    assert 1 < load.p50_us <= load.p99_us
    assert load.rate == load.calls / load.seconds


def test_some_clients_only_connect_and_calls_can_be_counted(echo: Caller) -> None:
    load = echo.load(2, 0, connected=50, calls=1000)
    assert 1000 <= load.calls <= 1001
    assert load.errors == 0


def test_an_answer_with_other_bytes_is_an_error(echo: Caller, folder: Path) -> None:
    other = folder / "other"
    other.write_bytes(_ANSWER[:-1] + b"s")
    load = Caller(echo.program, echo.address, echo.request, other).load(1, 0, calls=100)
    assert load.errors == 100


def test_a_server_that_is_not_there(echo: Caller, folder: Path) -> None:
    caller = Caller(echo.program, f"unix={folder / 'nothing'}", echo.request)
    with pytest.raises(Exception, match="returned non-zero"):
        caller.load(1, 0.1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))[::-1]
        self.send_response(200 if body == b"llac" else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize(("body", "wrong"), [(b"call", False), (b"cold", True)])
def test_http(folder: Path, body: bytes, wrong: bool) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    request, expect = folder / "request", folder / "body"
    request.write_bytes(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n" + body)
    expect.write_bytes(b"llac")
    address = f"tcp={server.server_address[1]}"
    caller = Caller(compile_c("client", folder), address, request, expect, http=True)
    load = caller.load(2, 0, calls=50)
    server.shutdown()
    server.server_close()
    assert load.calls >= 50
    assert (load.errors > 0) == wrong
