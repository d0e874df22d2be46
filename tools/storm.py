"""A storm over a server: clients that connect, send, half-send, stall and vanish at random.

`python -m sexpgpu.tools.storm --minutes 5` starts a server of its own, lets 200 clients loose,
and then looks whether every well-behaved call was answered rightly, and whether the server's file
descriptors, threads and memory are back where they began.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np

from sexpgpu.serve.host import DEFAULT_BATCH

#: A well-behaved client is answered within so many seconds, whatever the others do.
PATIENCE = 60.0
#: Memory that Python and the C library keep for later, of how many clients came at once.
_SLACK = 6 << 20
_ROWS = 5
_PIECE = 1 << 16


@dataclass
class Footprint:
    """What a process holds; of its memory what is its own, not pages of files."""

    descriptors: int
    threads: int
    memory: int

    @classmethod
    def of(cls, process: int) -> Footprint:
        """As the system shows it."""
        status = Path(f"/proc/{process}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return cls(
            len(os.listdir(f"/proc/{process}/fd")),
            int(fields["Threads"]),
            int(fields["RssAnon"].split()[0]) << 10,
        )


@dataclass
class Report:
    """What happened; `wrong` is empty where every well-behaved call was answered rightly."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    before: Footprint | None = None
    after: Footprint | None = None


class Storm:
    """Clients that all go on for some time, and until each deed was done, one after another.

    The server's model takes an index into five rows, whose bounds only the runtime knows, and
    `width` numbers, and gives the numbers times the row's.
    """

    def __init__(self, path: str, width: int, seed: int = 0) -> None:
        self.path = path
        self.width = width
        self.report = Report()
        self._random = random.Random(seed)
        self._pool = np.random.default_rng(seed).standard_normal(width + 512).astype(np.float32)
        self._deeds = [
            self.well_behaved,
            self.well_behaved,
            self.well_behaved,
            self.half_sent,
            self.stalled,
            self.vanished,
            self.never_reading,
            self.bad_index,
            self.wrong_length,
            self.silent,
        ]

    async def run(self, clients: int, seconds: float) -> None:
        """So many clients at once, for so long."""
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._client(number, end) for number in range(clients)))

    async def _client(self, number: int, end: float) -> None:
        while time.monotonic() < end or len(self.report.done) < len(set(self._deeds)):
            deed = self._random.choice(self._deeds)
            try:
                await asyncio.wait_for(deed(), PATIENCE)
            except Exception as error:
                self.report.wrong.append(f"{deed.__name__}: {error!r}")
            self.report.done[deed.__name__] += 1

    async def well_behaved(self) -> None:
        """Some calls, each answered rightly."""
        with await self._connect() as sock:
            for _ in range(self._random.randint(1, 20)):
                await self._call(sock)

    async def half_sent(self) -> None:
        """Hangs up in the middle of a call."""
        with await self._connect() as sock:
            frame, _ = self._frame()
            await _send(sock, frame[: self._random.randrange(len(frame))])

    async def stalled(self) -> None:
        """Sends a call in pieces, with pauses; it is answered all the same."""
        with await self._connect() as sock:
            frame, want = self._frame()
            cuts = sorted(self._random.randrange(len(frame)) for _ in range(4))
            for start, end in zip([0, *cuts], [*cuts, len(frame)], strict=True):
                await _send(sock, frame[start:end])
                await asyncio.sleep(self._random.random() * 0.05)
            self._check(await _receive_frame(sock), want)

    async def vanished(self) -> None:
        """Asks, and does not wait for the answer."""
        with await self._connect() as sock:
            whole = [
                await _send(sock, self._frame()[0], enough=0.1)
                for _ in range(self._random.randint(1, 3))
            ]
            if whole[0] and self._random.random() < 0.5:
                await _receive(sock, 3)

    async def never_reading(self) -> None:
        """Asks again and again and reads nothing, until nothing more is taken from it."""
        with await self._connect() as sock:
            for _ in range(50):
                if not await _send(sock, self._frame()[0], enough=0.05):
                    break
            await asyncio.sleep(self._random.random() * 0.2)

    async def bad_index(self) -> None:
        """Calls that fail while they run, between others that do not."""
        with await self._connect() as sock:
            for _ in range(3):
                await _send(sock, self._frame(index=self._random.choice([_ROWS, 99, -77]))[0])
                answer = await _receive_frame(sock)
                if answer[:1] != b"\1":
                    self.report.wrong.append("an index outside was answered")
                await self._call(sock)

    async def wrong_length(self) -> None:
        """Claims a length that no call has; the error comes, and then the end."""
        with await self._connect() as sock:
            length = self._random.choice([0, 1, 2**63, 2**64 - 1, self.width])
            await _send(sock, struct.pack("<Q", length) + b"x" * self._random.randrange(64))
            answer = await _receive_frame(sock)
            if answer[:1] != b"\1":
                self.report.wrong.append(f"a length of {length} was answered")

    async def silent(self) -> None:
        """Connects and says nothing, or does not even read the greeting."""
        sock = await self._open()
        with sock:
            await asyncio.sleep(self._random.random() * 0.2)

    async def _open(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        while True:
            try:
                await asyncio.get_running_loop().sock_connect(sock, self.path)
                return sock
            except BlockingIOError:
                # The queue of those who wait to be accepted is full.
                await asyncio.sleep(0.01)

    async def _connect(self) -> socket.socket:
        sock = await self._open()
        await _receive_frame(sock)
        return sock

    async def _call(self, sock: socket.socket) -> None:
        frame, want = self._frame()
        await _send(sock, frame)
        self._check(await _receive_frame(sock), want)

    def _frame(self, index: int | None = None) -> tuple[bytes, bytes]:
        """A call, and its answer."""
        row = self._random.randrange(_ROWS) if index is None else index
        start = self._random.randrange(512)
        x = self._pool[start : start + self.width]
        payload = struct.pack("<q", row) + x.tobytes()
        want = b"\0" + (x * np.float32(row)).tobytes()
        return struct.pack("<Q", len(payload)) + payload, want

    def _check(self, answer: bytes, want: bytes) -> None:
        if answer != want:
            shown = answer[1:200].decode(errors="replace") if answer[:1] == b"\1" else "other bits"
            self.report.wrong.append(f"a well-behaved call was answered with {shown}")


async def _send(sock: socket.socket, data: bytes, enough: float | None = None) -> bool:
    """Sends all; false where the other side takes no more for so many seconds."""
    try:
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(sock, data), enough)
    except TimeoutError:
        return False
    return True


async def _receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = await asyncio.get_running_loop().sock_recv(sock, min(_PIECE, size - len(data)))
        if not piece:
            raise EOFError("the server hung up")
        data += piece
    return bytes(data)


async def _receive_frame(sock: socket.socket) -> bytes:
    (length,) = struct.unpack("<Q", await _receive(sock, 8))
    return await _receive(sock, length)


def write_model(path: Path, width: int) -> None:
    """The model that the clients know."""
    import onnx

    rows = ", ".join(str(float(row)) for row in range(_ROWS))
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
    storm (int64[N] index, float[N,{width}] x) => (float[N,{width}] y) {{
        table = Constant <value_floats = [{rows}]> ()
        row = Gather (table, index)
        one = Constant <value_ints = [1]> ()
        column = Unsqueeze (row, one)
        y = Mul (x, column)
    }}"""
    onnx.save_model(onnx.parser.parse_model(text), str(path))


@contextmanager
def _server(folder: Path, width: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    path = str(folder / "s")
    write_model(folder / "storm.onnx", width)
    command = [sys.executable, "-m", "sexpgpu.tools.cli", "serve", str(folder / "storm.onnx")]
    options = ["--socket", path, "--device", "cpu"]
    with subprocess.Popen(command + options, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("the server did not start")
            yield process, path
        finally:
            process.kill()


def run_storm(clients: int, seconds: float, width: int, seed: int = 0) -> Report:
    """A server of its own, a gust to warm it up, and then the storm."""
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder), width) as (process, path):
        storm = Storm(path, width, seed)
        alone = Footprint.of(process.pid)
        asyncio.run(storm.run(clients, min(20.0, seconds / 3)))
        before = settled(process.pid, alone)
        asyncio.run(storm.run(clients, seconds))
        report = storm.report
        report.before, report.after = before, settled(process.pid, alone)
        process.send_signal(signal.SIGTERM)
        if process.wait(20) != 128 + signal.SIGTERM:
            report.wrong.append(f"the server ended with {process.returncode}")
    # An answer that is not read keeps the buffers of its whole batch, and the C library keeps them
    # after that.
    _compare(report, _SLACK + clients * DEFAULT_BATCH * 2 * 4 * width)
    return report


def settled(process: int, alone: Footprint) -> Footprint:
    """What a server holds when it has seen that its clients are gone, as it was `alone`."""
    last = Footprint.of(process)
    for _ in range(int(PATIENCE * 10)):
        time.sleep(0.1)
        now = Footprint.of(process)
        if now == last and now.descriptors <= alone.descriptors:
            break
        last = now
    return last


def _compare(report: Report, slack: int) -> None:
    before, after = report.before, report.after
    assert before is not None
    assert after is not None
    if after.descriptors != before.descriptors or after.threads != before.threads:
        report.wrong.append(f"the server held {before} and then {after}")
    elif after.memory > before.memory * 1.05 + slack:
        grown = (after.memory - before.memory) / 2**20
        report.wrong.append(f"the server's memory has grown by {grown:.1f} MiB")


@click.command()
@click.option("--minutes", type=float, default=5.0, help="How long it lasts.")
@click.option("--clients", type=click.IntRange(1, 10_000), default=200)
@click.option("--width", type=click.IntRange(1, 1 << 24), default=64, help="Numbers in a call.")
@click.option("--seed", type=int, default=0)
def main(minutes: float, clients: int, width: int, seed: int) -> None:
    """Let clients loose on a server, and see whether it stands."""
    _allow_many_files()
    report = run_storm(clients, minutes * 60, width, seed)
    for deed, count in sorted(report.done.items()):
        click.echo(f"{deed:14} {count:,}")
    click.echo(f"before {report.before}\nafter  {report.after}")
    for wrong, count in Counter(report.wrong).most_common(20):
        click.echo(f"wrong: {wrong} ({count:,} times)", err=True)
    sys.exit(1 if report.wrong else 0)


def _allow_many_files() -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
