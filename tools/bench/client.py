"""The load generator and the echo server, which are C programs, compiled when they are needed."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Load:
    """What a client process saw: latencies in µs, and answers other than expected."""

    calls: int
    seconds: float
    p50_us: float
    p99_us: float
    errors: int = 0

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.calls / self.seconds


def compile_c(name: str, folder: Path) -> Path:
    """Compiles `name`.c of this package into the folder, where that is not done yet."""
    source, program = SOURCES / f"{name}.c", folder / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        compiler = os.environ.get("CC", "cc")
        flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra"]
        subprocess.run([compiler, *flags, "-o", str(program), str(source)], check=True)
    return program


@dataclass(frozen=True, slots=True)
class Caller:
    """Calls of one server: its address, the bytes of a call, and the answer that must come."""

    program: Path
    address: str
    request: Path
    expect: Path | None = None
    http: bool = False

    def load(
        self, clients: int, seconds: float, *, connected: int | None = None, calls: int = 0
    ) -> Load:
        """Clients in a closed loop; more may be `connected` without calling.

        With `calls` it makes so many instead of stopping after some seconds.
        """
        arguments = {
            "request": self.request,
            "http": int(self.http),
            "connections": connected or clients,
            "active": clients,
            "seconds": seconds,
            "calls": calls,
        }
        if self.expect is not None:
            arguments["expect"] = self.expect
        words = [str(self.program), self.address, *(f"{k}={v}" for k, v in arguments.items())]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
        return Load(**json.loads(done.stdout))
