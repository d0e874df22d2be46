"""Processes that are measured: started, waited for, weighed and stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sexpgpu.tools.bench.client import SOURCES, Load
from sexpgpu.tools.bench.models import Exported, command_line

#: Where measured processes keep their modules' bytecode.
BYTECODE = Path(__file__).resolve().parents[2] / "build" / "cache" / "bench-bytecode"
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_PATIENCE = 180.0
_LOOK_SECONDS = 0.001


@contextmanager
def running(
    command: Sequence[str],
    *,
    log: Path | None = None,
    errors: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A process, and whatever it starts, until the block ends.

    What it says goes to `log`; or to a pipe, and what it says of errors to `errors`.
    """
    with open(log or errors or os.devnull, "w") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output if log else subprocess.PIPE,
            stderr=output,
            text=True,
            env=environment(env),
            start_new_session=True,
        )
        try:
            yield process
        finally:
            stop(process)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, in which Python keeps compiled modules, as it does where it is installed."""
    kept = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}
    return {**kept, "PYTHONPYCACHEPREFIX": str(BYTECODE), **(more or {})}


def stop(process: subprocess.Popen[str]) -> None:
    """Stops it and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
        time.sleep(0.1)


class InProcess:
    """`bare.py`: ONNX Runtime without a server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def load(self, batch: int, seconds: float) -> Load:
        """Runs batches in bound buffers; the latencies are those of a run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{batch} {seconds}\n")
        self._process.stdin.flush()
        return Load(**json.loads(self._process.stdout.readline()))


def bare_command(exported: Exported) -> list[str]:
    """The bare script on the exported file."""
    record = exported.folder / "record"
    record.write_bytes(exported.record)
    return [sys.executable, str(SOURCES / "bare.py"), str(exported.onnx), str(record)]


def serve_command(exported: Exported, path: Path, batch: int) -> list[str]:
    """This server on the exported directory."""
    flags = ["--socket", str(path), "--device", "cpu", "--batch", str(batch)]
    return [*command_line(), "serve", str(exported.folder / "export"), *flags]


def first_line(process: subprocess.Popen[str]) -> str:
    """Waits until the process says something."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended")
    return line


def first_answer(path: Path, record: bytes, process: subprocess.Popen[str]) -> bytes:
    """Connects as soon as the socket is there, and makes a call."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(path))
            except OSError:
                time.sleep(_LOOK_SECONDS)
                continue
            _frame(client)
            client.sendall(struct.pack("<Q", len(record)) + record)
            answer = _frame(client)
            if answer[:1] != b"\0":
                raise RuntimeError(f"the server refused the call: {answer[1:].decode()}")
            return answer
    raise RuntimeError(f"nobody answered at {path}")


def _frame(client: socket.socket) -> bytes:
    (size,) = struct.unpack("<Q", client.recv(8, socket.MSG_WAITALL))
    data = bytearray()
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            raise RuntimeError("the server closed the connection")
        data += piece
    return bytes(data)


def resident_bytes(pid: int) -> int:
    """Memory of a process and its children: their own, and their share of what several map.

    Of a single process it is all that is resident.
    """
    family = list(_family(pid))
    field = "Rss:" if len(family) == 1 else "Pss:"
    total = 0
    for member in family:
        try:
            text = Path(f"/proc/{member}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(field))
    return total * 1024


def _family(pid: int) -> Iterator[int]:
    """Everything in the process's session, since each is started with one of its own."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getsid(int(entry.name)) == pid:
                    yield int(entry.name)
            except ProcessLookupError:
                continue
