"""Runs that are killed by a signal that nothing can handle, at one moment after another."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.tools.train_storm import compare, files
from support.commands import run_alone
from support.training import LINE, train, write_line

#: Kills its process before it opens, renames or removes what has a name.
AT = """
import os, signal, sys
def hook(event, arguments):
    if event == {event!r} and {name!r} in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""

#: Kills its process at a call of what the run uses.
IN = """
import os, signal
import sexpgpu.tools.train.run as run
left = [{count}]
real = run.{name}
def replaced(*given, **named):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **named)
run.{name} = replaced
"""

#: Where it is killed, and the newest step then, in this order.
MOMENTS = {
    "in the third step": (IN.format(name="Taken", count=3), None),
    "in the first checkpoint": (AT.format(event="open", name="ema.safetensors"), None),
    "before a checkpoint has its name": (AT.format(event="os.rename", name=".step-00000010"), 5),
    "while the log is cut": (AT.format(event="os.rename", name=".metrics.jsonl"), 5),
    "in an evaluation": (IN.format(name="evaluate", count=1), 5),
    "while a checkpoint is removed": (AT.format(event="os.rmdir", name=".removed"), 15),
}


def newest(location: Path) -> int | None:
    """The newest step, which is whole; so is every other."""
    steps = sorted(location.glob("step-*"))
    for step in steps:
        open_checkpoint(str(step)).verify()
    if not steps:
        return None
    checkpoint = open_checkpoint(str(location))
    return checkpoint.document.step


def test_killed_at_any_moment_a_run_comes_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_line(tmp_path)
    program = Path("line.sx")
    program.write_text(LINE.replace("{more}", ":keep 2"))
    train(program, "whole")
    arguments = ["run", "line.sx", "--checkpoint-dir", "run", "--device", "cpu"]
    for moment, (before, step) in MOMENTS.items():
        done = run_alone(tmp_path, *arguments, before=before)
        assert done.returncode == -signal.SIGKILL, (moment, done.stderr)
        assert newest(tmp_path / "run") == step, moment
    done = run_alone(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert "going on after step 15" in done.stderr
    assert compare(files(tmp_path / "whole"), tmp_path / "run", 20, 5) == []
