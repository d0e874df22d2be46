"""Contenders in processes of their own that train by turns, so that what slows one slows all.

A contender reads a number from its standard input, takes so many steps, waits until they are done
and answers `{"seconds": …}`; when the input ends it prints `{"losses": […], "device_bytes": …}`:
those of its first five steps, and the most memory of a GPU that it had.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sexpgpu.tools.bench.client import SOURCES
from sexpgpu.tools.bench.processes import running

JAX, STEP, RUN, EAGER, COMPILED = "JAX", "our step", "our run", "PyTorch", "PyTorch compiled"
#: The first is what the others are compared with.
CONTENDERS = (JAX, STEP, RUN, EAGER, COMPILED)
#: Its first step takes about a minute; it is started once.
_SLOW_START = COMPILED
#: Steps whose losses are compared, and that warm up what is measured then.
_FIRST = 5
#: Steps by which a turn's number of steps is found.
_PROBE = 3
#: Every start compiles.
_NO_CACHE = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
_OURS = "sexpgpu.tools.bench.train_sexpgpu"


class ContenderError(Exception):
    """What a contender said before it ended."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long is measured: rounds, in which each has a turn of so many seconds, and starts."""

    rounds: int = 12
    seconds: float = 0.5
    starts: int = 2


@dataclass
class Trained:
    """What was found, by contender.

    `seconds` are a step's, one a round; `first` from starting the process to the end of its first
    step; `bytes` the most memory that was resident, or that a GPU had in use; `losses` of the first
    steps; `unavailable` why one could not take part.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    first: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    bytes: dict[str, int] = field(default_factory=dict)
    losses: dict[str, list[float]] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)


class Contender:
    """A process that trains when it is told to."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def train(self, steps: int) -> float:
        """The seconds that the steps took.  Raises ContenderError where it ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{steps}\n")
            self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def finish(self) -> tuple[list[float], int]:
        """The losses of its first steps, and the most bytes of memory."""
        assert self._process.stdin is not None
        resident = _most_resident(self._process.pid)
        self._process.stdin.close()
        end = self._answer()
        return end["losses"], int(end["device_bytes"]) or resident

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            lines = self._errors.read_text().strip().splitlines()
            raise ContenderError(lines[-1] if lines else "it ended without a word")
        answer: dict[str, Any] = json.loads(line)
        return answer


def measure(folder: Path, device: str, names: Sequence[str], effort: Effort) -> Trained:
    """Starts the contenders on the files of `train_gpt.prepare`, and lets them train by turns."""
    found = Trained()
    for _ in range(effort.starts - 1):
        for name in names:
            if name not in (_SLOW_START, *found.unavailable):
                _start_alone(found, name, folder, device)
    with ExitStack() as stack:
        there: dict[str, Contender] = {}
        for name in names:
            if name not in found.unavailable:
                with _leaving_out(found, there, name):
                    there[name] = stack.enter_context(_started(found, name, folder, device))
        _turns(found, there, effort)
        for name, contender in [*there.items()]:
            with _leaving_out(found, there, name):
                found.losses[name], found.bytes[name] = contender.finish()
    return found


def _turns(found: Trained, there: dict[str, Contender], effort: Effort) -> None:
    steps = {}
    for name, contender in [*there.items()]:
        with _leaving_out(found, there, name):
            contender.train(_FIRST - 1)
            steps[name] = max(1, round(effort.seconds * _PROBE / contender.train(_PROBE)))
    order = [*there]
    for _ in range(effort.rounds):
        for name in order:
            if name in there:
                with _leaving_out(found, there, name):
                    took = there[name].train(steps[name])
                    found.seconds[name].append(took / steps[name])
        # Who comes after whom shall make no difference.
        order.reverse()


@contextmanager
def _leaving_out(found: Trained, there: dict[str, Contender], name: str) -> Iterator[None]:
    """A contender that ends takes no part any more."""
    try:
        yield
    except ContenderError as error:
        found.unavailable[name] = str(error)
        there.pop(name, None)
        for values in (found.seconds, found.first, found.losses):
            values.pop(name, None)


def _start_alone(found: Trained, name: str, folder: Path, device: str) -> None:
    try:
        with _started(found, name, folder, device):
            pass
    except ContenderError as error:
        found.unavailable[name] = str(error)


@contextmanager
def _started(found: Trained, name: str, folder: Path, device: str) -> Iterator[Contender]:
    """A contender that has taken its first step."""
    errors = folder / f"{name.replace(' ', '-')}.err"
    begin = time.perf_counter()
    with running(_command(name, folder, device), errors=errors, env=_NO_CACHE) as process:
        contender = Contender(process, errors)
        contender.train(1)
        found.first[name].append(time.perf_counter() - begin)
        yield contender


def _command(name: str, folder: Path, device: str) -> list[str]:
    arguments = {
        JAX: [str(SOURCES / "train_jax.py"), str(folder), device],
        STEP: ["-m", _OURS, str(folder), "step", device],
        RUN: ["-m", _OURS, str(folder), "run", device],
        EAGER: [str(SOURCES / "train_torch.py"), str(folder), "eager", device],
        COMPILED: [str(SOURCES / "train_torch.py"), str(folder), "compiled", device],
    }
    return [sys.executable, *arguments[name]]


def _most_resident(pid: int) -> int:
    """The most bytes that were resident at once."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
