"""One model measured: what is compared runs by turns, in the same state of the machine."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from sexpgpu.tools.bench.client import Caller, Load, compile_c
from sexpgpu.tools.bench.models import Exported
from sexpgpu.tools.bench.peers import PEERS, Peer, Unavailable, serving
from sexpgpu.tools.bench.processes import (
    InProcess,
    bare_command,
    first_answer,
    first_line,
    resident_bytes,
    running,
    serve_command,
)

BATCH = 8
_SHORT = 0.02
#: A turn is long enough for so many runs; and a run of so many µs is a long one.
_LEAST_RUNS = 100
_LONG_US = 20_000
CLIENTS = (1, 8, 64)
#: Connected clients, and how many of them call.
CROWD = (1000, 100)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long is measured: rounds of so many seconds each, and starts."""

    rounds: int = 5
    seconds: float = 1.0
    starts: int = 3
    calls: int = 0


@dataclass
class Measured:
    """What was found for one model, a value a round.

    `loads` are by who answered and with how many clients (in process: records a run), `echo_us` an
    echo's round trip, `seconds` from a start to the first answer, `bytes` resident memory.
    """

    exported: Exported
    loads: dict[tuple[str, int], list[Load]] = field(default_factory=lambda: defaultdict(list))
    echo_us: list[float] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    bytes: dict[str, int] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    crowd: dict[str, list[Load]] = field(default_factory=lambda: defaultdict(list))

    def rates(self, who: str, clients: int) -> list[float]:
        """Calls a second."""
        return [load.rate for load in self.loads[who, clients]]

    def p50(self, who: str, clients: int) -> list[float]:
        """Median latencies in µs."""
        return [load.p50_us for load in self.loads[who, clients]]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where files of a run are, and how much is measured."""

    folder: Path
    effort: Effort
    peers: Sequence[str] = ()

    def measure(self, exported: Exported) -> Measured:
        """Everything about one model."""
        found = Measured(exported)
        self._starts(found)
        with self._served(exported) as (server, pid), running(bare_command(exported)) as process:
            first_line(process)
            bare = InProcess(process)
            busy = bare.load(1, self.effort.seconds).p50_us
            seconds = max(self.effort.seconds, _LEAST_RUNS * busy / 1e6)
            with self._echoing(exported, busy) as echo:
                for _ in range(self.effort.rounds):
                    self._round(found, server, bare, echo, busy, seconds)
            found.bytes["server"] = resident_bytes(pid)
            # Where a run takes long, all servers take as long.
            for name in self.peers if busy < _LONG_US else ():
                self._peer(found, PEERS[name], server, seconds)
            if self.effort.calls:
                server.load(BATCH, 0, calls=self.effort.calls // 10)
                found.bytes["server before"] = resident_bytes(pid)
                server.load(BATCH, 0, calls=self.effort.calls)
                found.bytes["server after"] = resident_bytes(pid)
        return found

    def _round(
        self,
        found: Measured,
        server: Caller,
        bare: InProcess,
        echo: Caller,
        busy: float,
        seconds: float,
    ) -> None:
        for batch in (1, BATCH):
            found.loads["in process", batch].append(bare.load(batch, seconds))
            found.loads["server", batch].append(server.load(batch, seconds))
            if batch == 1:
                found.echo_us.append(echo.load(1, seconds).p50_us - busy)
        found.loads["server", CLIENTS[-1]].append(server.load(CLIENTS[-1], seconds))
        connected, active = CROWD
        found.crowd["alone"].append(server.load(active, seconds))
        found.crowd["among idle"].append(server.load(active, seconds, connected=connected))

    def _starts(self, found: Measured) -> None:
        """From a start to the first answer, by turns."""
        exported = found.exported
        path = self.folder / "start.sock"
        for _ in range(self.effort.starts):
            begin = time.perf_counter()
            with running(bare_command(exported)) as process:
                first_line(process)
                found.seconds["bare"].append(time.perf_counter() - begin)
                # In what is kept for long measurements there are their figures as well.
                for batch in (1, BATCH):
                    InProcess(process).load(batch, _SHORT)
                found.bytes["bare"] = resident_bytes(process.pid)
            begin = time.perf_counter()
            with running(serve_command(exported, path, BATCH)) as process:
                first_answer(path, exported.record, process)
                found.seconds["server"].append(time.perf_counter() - begin)

    def _peer(self, found: Measured, peer: Peer, server: Caller, seconds: float) -> None:
        program = compile_c("client", self.folder)
        try:
            with serving(peer, found.exported, self.folder, program) as (caller, pid, start):
                for _ in range(self.effort.rounds):
                    for clients in CLIENTS:
                        for who, what in (("server", server), (peer.name, caller)):
                            key = who if who == peer.name else f"server beside {peer.name}"
                            load = what.load(clients, seconds)
                            found.loads[key, clients].append(load)
                found.seconds[peer.name].append(start)
                found.bytes[peer.name] = resident_bytes(pid)
        except Unavailable as error:
            found.unavailable[peer.name] = str(error)

    @contextmanager
    def _served(self, exported: Exported) -> Iterator[tuple[Caller, int]]:
        """This server, whose every answer must have the bits of its first."""
        path = self.folder / "bench.sock"
        with running(serve_command(exported, path, BATCH)) as process:
            answer = first_answer(path, exported.record, process)
            expected = np.frombuffer(exported.logits, np.float32)
            if not np.allclose(np.frombuffer(answer[1:], np.float32), expected, 1e-3, 1e-3):
                raise RuntimeError("the server gives other answers than the exported file")
            call, expect = exported.write_call(answer[1:])
            program = compile_c("client", self.folder)
            yield Caller(program, f"unix={path}", call, expect), process.pid

    @contextmanager
    def _echoing(self, exported: Exported, busy_us: float) -> Iterator[Caller]:
        """An echo of the same bytes, busy for as long as a run."""
        path = self.folder / "echo.sock"
        path.unlink(missing_ok=True)
        call, answer = exported.write_call()
        command = [str(compile_c("echo", self.folder)), str(path), str(call.stat().st_size)]
        with running([*command, str(answer), str(int(busy_us * 1000))]) as process:
            while not path.exists():
                if process.poll() is not None:
                    raise RuntimeError("the echo server ended")
                time.sleep(0.01)
            yield Caller(compile_c("client", self.folder), f"unix={path}", call, answer)


def middle(values: Sequence[float]) -> float:
    """The median, of rounds."""
    return float(median(values))
