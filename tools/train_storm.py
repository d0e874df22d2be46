"""A storm over training: runs that are killed at random moments, and what is left of them.

`python -m sexpgpu.tools.train_storm --kills 200` kills a small run again and again, with a signal
that no process can handle, and resumes it each time.  Half of the kills come at a random time:
while packages are imported, a step is compiled, or steps are taken.  Half come at a random one of
the changes that the run makes in its location, so that every stage of writing and removing a
checkpoint is hit.  A run that came to its end must have left the same bits as one that was left
alone, every step in its log once, and nothing besides; then the next one begins.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np

from sexpgpu.tools.train.metrics import LOG

STEPS = 240
EVALUATED = 5

#: It has all that a resumed run must find again: an optimizer's moments, averages, a counter,
#: random numbers, an order of the records, evaluations, and old checkpoints to remove.
PROGRAM = f"""
(def train (arrays "line.npz"))
(defn prepare (r) (list :inputs (get r :x) :y (get r :y)))
(def body (linear 3 8))
(def head (linear 8 1))
(defn model (x) (head (dropout (tanh (body x)) 0.1)))
(defn loss (p r)
  (let (e (- (squeeze p :axis 1) (get r :y)))
    (do (counter :steps 1)
        (list :loss (mean (* e e)) :worst (max (abs e))))))
(defrun :train train :eval train :steps {STEPS} :batch 16 :accumulate 2
        :optimizer (adamw :lr 0.01) :schedule (cosine :warm-up 10) :ema 0.9
        :checkpoint-every 3 :evaluate-every {EVALUATED} :keep 3)
"""

#: Kills its own process just before the n-th change in a directory.
_HOOK = """
import os, signal, sys
def watch(folder, count):
    changes = ("open", "os.mkdir", "os.rename", "os.rmdir", "os.remove", "os.truncate")
    seen = [0]
    def hook(event, arguments):
        if event in changes and isinstance(arguments[0], (str, bytes)):
            if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                return
            if os.path.abspath(os.fsdecode(arguments[0])).startswith(folder):
                seen[0] += 1
                if seen[0] == count:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
"""
_MAIN = "from sexpgpu.tools.cli import main; main(sys.argv[1:])"


@dataclass
class Report:
    """What happened; `wrong` is empty where every run came to the same end."""

    kills: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    wrong: list[str] = field(default_factory=list)


class Storm:
    """Kills of runs in a directory, each run followed through to its end."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.report = Report()
        self._folder = folder
        self._random = random.Random(seed)
        (folder / "line.sx").write_text(PROGRAM)
        draw = np.random.default_rng(1)
        x = draw.normal(size=(64, 3)).astype(np.float32)
        np.savez(folder / "line.npz", x=x, y=x @ np.array([1, -2, 3], np.float32))
        began = time.monotonic()
        if self._run("whole") != 0:
            raise RuntimeError((folder / "whole.txt").read_text())
        self._seconds = time.monotonic() - began
        self._whole = files(folder / "whole")
        # Of a whole run: five files and two directories a checkpoint, and as much when one goes.
        self._changes = 12 * (STEPS // 3)

    def rage(self, kills: int, seconds: float) -> None:
        """So many kills, or as many as come in so many seconds; the last run comes to its end."""
        end = time.monotonic() + seconds
        while self.report.kills.total() < kills and time.monotonic() < end:
            location = f"run-{self.report.runs}"
            while self.report.kills.total() < kills and time.monotonic() < end:
                if not self._kill(location):
                    break
            self.finish(location)

    def _kill(self, location: str) -> bool:
        """Whether the run was killed; else it came to its end, or failed."""
        place = self._folder / location
        before = _newest(place)
        if self._random.random() < 0.5:
            status = self._run(location, timeout=self._random.random() * self._seconds)
            how = "at a time"
        else:
            status = self._run(location, change=self._random.randint(1, self._changes // 4))
            how = "at a change"
        if status != -9:
            if status != 0:
                self.report.wrong.append(f"{location}: a resumed run ended with {status}")
            return False
        self.report.kills[f"{how}, {_moment(place, before)}"] += 1
        return True

    def finish(self, location: str) -> None:
        """Lets a run come to its end, and looks at what it left."""
        status = self._run(location)
        self.report.runs += 1
        if status != 0:
            self.report.wrong.append(f"{location}: it ended with {status}")
            return
        self.report.wrong += [
            f"{location}: {fault}"
            for fault in compare(self._whole, self._folder / location, STEPS, EVALUATED)
        ]

    def _run(self, location: str, timeout: float | None = None, change: int = 0) -> int:
        """The run's status, -9 where it was killed after a time or at a change."""
        place = self._folder / location
        code = f"{_HOOK}\nwatch({str(place)!r}, {change})\n{_MAIN}"
        arguments = ["run", "line.sx", "--checkpoint-dir", location, "--device", "cpu"]
        with open(self._folder / f"{location}.txt", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait()


def files(location: Path) -> dict[str, bytes]:
    """What a location holds, by path, without what tells the time or the location's name."""
    return {
        str(path.relative_to(location)): path.read_bytes() if path.suffix == ".safetensors" else b""
        for path in sorted(location.rglob("*"))
        if path.is_file()
    }


def compare(whole: dict[str, bytes], location: Path, steps: int, evaluated: int) -> list[str]:
    """What a run left that a whole one does not leave, or leaves otherwise.

    `whole` are the files of a run that was left alone, of so many steps, evaluated every so often.
    """
    found = files(location)
    faults = [f"{name} is left" for name in sorted(found.keys() - whole.keys())]
    faults += [f"{name} is missing" for name in sorted(whole.keys() - found.keys())]
    faults += [
        f"{name} has other bits"
        for name in found.keys() & whole.keys()
        if found[name] != whole[name]
    ]
    faults += [f"{path.name} is left" for path in location.iterdir() if path.name.startswith(".")]
    for kind, every in (("train", 1), ("evaluation", evaluated)):
        told = [line["step"] for line in _lines(location) if line["kind"] == kind]
        if told != list(range(every, steps + 1, every)):
            faults.append(f"the log does not have every {kind} once, in order")
    return faults


def _lines(location: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (location / LOG).read_text().splitlines()]


def _newest(location: Path) -> str:
    return max((path.name for path in location.glob("step-*")), default="")


def _moment(location: Path, before: str) -> str:
    """In which part of its work a process was killed, as what it left shows."""
    names = [path.name for path in location.glob(".step-*")]
    if any(name.endswith(".removed") for name in names):
        return "while a checkpoint was removed"
    if names:
        return "while a checkpoint was written"
    if _newest(location) == before:
        return "before its first checkpoint"
    return "between checkpoints"


@click.command()
@click.option("--kills", type=click.IntRange(min=1), default=200)
@click.option("--minutes", type=float, default=60.0, help="At most so long.")
@click.option("--seed", type=int, default=0)
def main(kills: int, minutes: float, seed: int) -> None:
    """Kill runs at random moments, and see whether they come to the same end."""
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    with tempfile.TemporaryDirectory() as folder:
        storm = Storm(Path(folder), seed)
        storm.rage(kills, minutes * 60)
    report = storm.report
    for moment, count in sorted(report.kills.items()):
        click.echo(f"{count:5} {moment}")
    click.echo(f"{report.kills.total():5} kills of {report.runs} runs")
    for wrong in report.wrong:
        click.echo(f"wrong: {wrong}", err=True)
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
