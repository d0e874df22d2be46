"""Small runs for tests: a program's text, its data, and the run carried out in this process."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sexpgpu.export.storage.location import Location
from sexpgpu.tools.train.plan import make_plan
from sexpgpu.tools.train.run import Mode, Outcome, TrainingRun

#: A line through points, found again: y = x · (1, -2, 3) + 0.5.
LINE = """
(defknob width 3)
(def train (arrays "line.npz"))
(defn prepare (r) (list :inputs (get r :x) :y (get r :y)))
(def model (linear width 1))
(defn loss (p r) (let (e (- (squeeze p :axis 1) (get r :y)))
  (list :loss (mean (* e e)) :worst (max (abs e)))))
(defrun :train train :eval train :steps 20 :batch 16 :optimizer (adam :lr 0.1) :ema 0.9
        :checkpoint-every 5 {more})
"""


def write_line(folder: Path, records: int = 64) -> None:
    """`line.npz`: x [records, 3] and y [records]."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(records, 3)).astype(np.float32)
    y = x @ np.array([1, -2, 3], np.float32) + np.float32(0.5)
    np.savez(folder / "line.npz", x=x, y=y)


def train(
    program: Path,
    location: Path | str,
    mode: Mode = "auto",
    *,
    steps: int | None = None,
    variant: str | None = None,
    knobs: Mapping[str, object] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Outcome, str]:
    """A run, and what it said."""
    stream = io.StringIO()
    plan = make_plan(program, variant, knobs, steps)
    run = TrainingRun(plan, Location.parse(str(location)), stream, stop)
    return run.run(mode), stream.getvalue()


def stop_after(steps: int) -> Callable[[], bool]:
    """Asks for an end when so many steps were taken."""
    taken = 0

    def stop() -> bool:
        nonlocal taken
        taken += 1
        return taken == steps

    return stop


def contents(folder: Path) -> dict[str, bytes]:
    """The files of every step, by path; without what tells the location's own name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*.safetensors"))
    }
