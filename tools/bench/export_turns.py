"""Two exports of one model by turns: each writes it, then ONNX Runtime runs what both wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.bench.client import SOURCES
from sexpgpu.tools.bench.export_models import BATCHES, RECORDS, Prepared
from sexpgpu.tools.bench.processes import environment, running
from sexpgpu.tools.bench.rounds import middle

OURS, UNVERIFIED, THEIRS = "sexpgpu", "sexpgpu, unverified", "torch.onnx"
#: Who exports; what is run are the files of the first and the last.
EXPORTERS = (OURS, UNVERIFIED, THEIRS)
RUN = (OURS, THEIRS)


class ContenderError(Exception):
    """What a process said before it ended."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: exports of each, rounds of runs, and the seconds of a turn."""

    exports: int = 3
    rounds: int = 12
    seconds: float = 0.5
    threads: int = 1


@dataclass
class Found:
    """What was found for one model, by exporter.

    `seconds` and `peaks` have a value for each export, `runs` by exporter and batch a value for
    each round.  `differences` are the largest ones from an evaluation in f64, as shares of the
    largest number of an output.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    peaks: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    runs: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    bytes: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)
    weight_bytes: int = 0

    def as_data(self) -> dict[str, Any]:
        """Medians of what was measured more than once, and the rounds themselves."""
        return {
            "weight_bytes": self.weight_bytes,
            "exporters": {
                who: {
                    "seconds": round(middle(seconds), 3),
                    "peak_bytes": int(middle(self.peaks[who])),
                    "bytes": self.bytes.get(who),
                    "nodes": self.nodes.get(who),
                    "difference": self.differences.get(who),
                    "run_seconds": {
                        str(batch): round(middle(self.runs[who, batch]), 6)
                        for batch in BATCHES
                        if (who, batch) in self.runs
                    },
                }
                for who, seconds in self.seconds.items()
            },
            "export_rounds": dict(self.seconds),
            "run_rounds": {
                str(batch): {who: self.runs[who, batch] for who in RUN} for batch in BATCHES
            },
        }


def measure(prepared: Prepared, effort: Effort) -> Found:
    """Everything about one model.  Raises ContenderError where a process fails."""
    found = Found()
    for number in range(effort.exports):
        # Who comes after whom shall make no difference.
        for who in EXPORTERS if number % 2 else reversed(EXPORTERS):
            told = _finish(_export_command(who, prepared))
            found.seconds[who].append(told["seconds"])
            found.peaks[who].append(told["peak_bytes"])
            found.weight_bytes = told.get("weight_bytes", found.weight_bytes)
    for who in RUN:
        path = exported_file(who, prepared)
        found.bytes[who] = sum(file.stat().st_size for file in path.parent.iterdir())
        found.nodes[who] = len(onnx.load(path, load_external_data=False).graph.node)
    expected = prepared.folder / "expected.npz"
    _finish(_theirs(prepared, "evaluate", expected), speaks=False)
    with _started(OURS, prepared, effort) as ours, _started(THEIRS, prepared, effort) as theirs:
        sessions = {OURS: ours, THEIRS: theirs}
        for who, session in sessions.items():
            found.differences[who] = _difference(session, prepared.folder / "outputs.npz", expected)
        expected.unlink()
        _turns(found, sessions, effort)
    return found


class _Session:
    """A process in which ONNX Runtime has loaded a file."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors
        self._answer()

    def run(self, batch: int, seconds: float) -> float:
        """The seconds of a run of so many records."""
        return float(self._ask(f"run {batch} {seconds}")["seconds"])

    def save(self, batch: int, path: Path) -> None:
        self._ask(f"save {batch} {path}")

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ContenderError(_last_line(self._errors.read_text()))
        answer: dict[str, Any] = json.loads(line)
        return answer


def _turns(found: Found, sessions: Mapping[str, _Session], effort: Effort) -> None:
    for batch in BATCHES:
        for session in sessions.values():
            session.run(batch, 0)
        order = [*sessions]
        for _ in range(effort.rounds):
            for who in order:
                found.runs[who, batch].append(sessions[who].run(batch, effort.seconds))
            order.reverse()


def exported_file(who: str, prepared: Prepared) -> Path:
    """The graph's file; the directory that it stands in has all that belongs to it."""
    return prepared.folder / ("theirs" if who == THEIRS else "ours") / "model.onnx"


def _export_command(who: str, prepared: Prepared) -> list[str]:
    if who == THEIRS:
        out = exported_file(THEIRS, prepared)
        out.parent.mkdir(exist_ok=True)
        for file in out.parent.iterdir():
            file.unlink()
        return _theirs(prepared, "export", out)
    place, mode = ("ours", "verified") if who == OURS else ("unverified", "unverified")
    module = "sexpgpu.tools.bench.export_ours"
    folder = prepared.folder
    return [sys.executable, "-m", module, str(folder), str(folder / place), mode]


def _theirs(prepared: Prepared, mode: str, out: Path) -> list[str]:
    script = SOURCES / "export_theirs.py"
    return [sys.executable, str(script), str(prepared.folder), mode, str(out)]


def _finish(command: Sequence[str], *, speaks: bool = True) -> dict[str, Any]:
    """What a process says at its end."""
    places = {"PYTHONPATH": ":".join(place for place in sys.path if place)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(places), check=False
    )
    if done.returncode:
        raise ContenderError(_last_line(done.stderr))
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if speaks else {}
    return told


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it ended without a word"


@contextmanager
def _started(who: str, prepared: Prepared, effort: Effort) -> Iterator[_Session]:
    errors = prepared.folder / f"{'theirs' if who == THEIRS else 'ours'}.err"
    script = str(SOURCES / "export_runtime.py")
    file = str(exported_file(who, prepared))
    command = [sys.executable, script, file, str(prepared.inputs), str(effort.threads)]
    with running(command, errors=errors) as process:
        yield _Session(process, errors)


def _difference(session: _Session, place: Path, expected: Path) -> float:
    """The largest one of any output, as a share of its largest number."""
    session.save(RECORDS, place)
    with np.load(place) as found, np.load(expected) as wanted:
        shares = [
            share_of_largest(found[key], wanted[other])
            for key, other in zip(found, wanted, strict=True)
        ]
    place.unlink()
    return max(shares)


def share_of_largest(found: Array, wanted: Array) -> float:
    """How far they are apart at most, by the largest magnitude wanted; a record at a time."""
    if found.shape != wanted.shape:
        raise ContenderError(f"an output is {found.shape} and not {wanted.shape}")
    apart = max(float(np.max(np.abs(a - b))) for a, b in zip(found, wanted, strict=True))
    return apart / max(float(np.max(np.abs(b))) for b in wanted)
