"""Other servers that host the same file: how each is installed, started and called.

Each has a virtual environment of its own and a script beside this module, which is run by that
environment's Python and imports nothing of ours.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import numpy as np

from sexpgpu.tools.bench.client import Caller
from sexpgpu.tools.bench.models import Exported
from sexpgpu.tools.bench.processes import running

SCRIPTS = Path(__file__).resolve().parent
_START_SECONDS = 120.0


def _raw(exported: Exported) -> bytes:
    return exported.record


def _tokens(exported: Exported) -> list[int]:
    return [int(token) for token in np.frombuffer(exported.record, np.int32)]


def _litserve(exported: Exported) -> bytes:
    return json.dumps({"tokens": _tokens(exported)}).encode()


def _bentoml(exported: Exported) -> bytes:
    return json.dumps({"tokens": [_tokens(exported)]}).encode()


def _mlserver(exported: Exported) -> bytes:
    window = exported.model.window
    tensor = {"name": "t", "shape": [1, window], "datatype": "INT32", "data": _tokens(exported)}
    return json.dumps({"inputs": [tensor]}).encode()


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to compare with: `body` makes a call, `binary` says that the answer is raw bytes."""

    name: str
    packages: tuple[str, ...]
    body: Callable[[Exported], bytes] = _raw
    binary: bool = True
    path: str = "/call"

    @property
    def script(self) -> Path:
        """What is run."""
        return SCRIPTS / f"{self.name}_server.py"


PEERS = {
    peer.name: peer
    for peer in (
        Peer("fastapi", ("fastapi", "uvicorn[standard]")),
        Peer("mosec", ("mosec",), path="/inference"),
        Peer("litserve", ("litserve",), _litserve),
        Peer("bentoml", ("bentoml",), _bentoml, binary=False),
        Peer("ray", ("ray[serve]",)),
        Peer("mlserver", ("mlserver",), _mlserver, binary=False, path="/v2/models/bench/infer"),
    )
}


class Unavailable(Exception):
    """A peer that cannot be installed or does not answer, and why."""


def install(peer: Peer, folder: Path) -> Path:
    """The Python of the peer's environment, which is made where there is none.

    Raises Unavailable with the last words of pip.
    """
    place = folder / "environments" / peer.name
    python = place / "bin" / "python"
    done = place / "installed"
    if done.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    words = [str(python), "-m", "pip", "install", "-q", "numpy", "onnxruntime", *peer.packages]
    result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        lines = [line for line in result.stdout.splitlines() if "ERROR" in line]
        raise Unavailable(f"cannot be installed: {' '.join(lines[-1:]) or 'pip failed'}")
    done.write_text("")
    return python


@contextmanager
def serving(
    peer: Peer, exported: Exported, folder: Path, client: Path
) -> Iterator[tuple[Caller, int, float]]:
    """A running peer: its caller, its process and the seconds from start to first answer.

    Raises Unavailable where it cannot be installed, or its answer is not the model's.
    """
    python = install(peer, folder)
    port = _free_port()
    log = folder / f"{peer.name}.log"
    body = peer.body(exported)
    kind = "application/octet-stream" if body is exported.record else "application/json"
    head = (
        f"POST {peer.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    call = folder / f"{peer.name}.call"
    call.write_bytes(head.encode() + body)
    begin = time.perf_counter()
    command = [str(python), str(peer.script), str(port)]
    environment = {
        "BENCH_MODEL": str(exported.onnx),
        "PYTHONPATH": str(SCRIPTS),
        "OMP_NUM_THREADS": "1",
        "BENTOML_DO_NOT_TRACK": "True",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with running(command, log=log, env=environment) as process:
        try:
            answer = _first_answer(port, peer.path, body, kind, process)
        except RuntimeError as error:
            words = log.read_text().strip().splitlines()[-1:] if process.poll() else []
            raise Unavailable(f"does not answer: {' '.join(words) or error}") from None
        seconds = time.perf_counter() - begin
        expect = None
        if peer.binary:
            expect = folder / f"{peer.name}.answer"
            expect.write_bytes(answer)
            _compare(np.frombuffer(answer, np.float32), exported)
        yield Caller(client, f"tcp={port}", call, expect, http=True), process.pid, seconds


def _compare(logits: np.ndarray[tuple[int], np.dtype[np.float32]], exported: Exported) -> None:
    expected = np.frombuffer(exported.logits, np.float32)
    if logits.shape != expected.shape or not np.allclose(logits, expected, 1e-3, 1e-3):
        raise Unavailable("gives other answers than the model")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _first_answer(
    port: int, path: str, body: bytes, kind: str, process: subprocess.Popen[str]
) -> bytes:
    """Calls until there is an answer with status 200, and gives its body."""
    end = time.monotonic() + _START_SECONDS
    said = "nobody listens"
    while time.monotonic() < end and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", path, body, {"Content-Type": kind})
            response = connection.getresponse()
            answer = response.read()
        except (OSError, HTTPException) as error:
            said = str(error)
            time.sleep(0.01)
            continue
        finally:
            connection.close()
        if response.status == 200:
            return answer
        said = f"status {response.status}: {answer[:200].decode(errors='replace')}"
        time.sleep(0.05)
    raise RuntimeError(said)
