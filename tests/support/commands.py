"""The command line, in this process and in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sexpgpu.tools.cli import main

SCRIPT = "import sys; from sexpgpu.tools.cli import main; main(sys.argv[1:])"

#: Runs a command: its exit status, and what it writes on stdout and stderr.
Run = Callable[..., tuple[int, str, str]]


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands in this process."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return int(caught.value.code or 0), shown.out, shown.err

    return run


def command(*arguments: str, before: str = "") -> list[str]:
    """A command line of a process of its own; `before` is Python that it runs first."""
    return [sys.executable, "-c", before + SCRIPT, *arguments]


def launched(command: Sequence[str], before: str) -> list[str]:
    """A command line of which Python runs `before` and then becomes the command.

    What it sets stays: limits, permissions, signals that are ignored.  To do so between fork and
    exec is not safe in a process of several threads, as one that runs tests may be.
    """
    code = f"import os, sys\n{before}\nos.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-S", "-c", code, *command]


def environment(**changes: str) -> dict[str, str]:
    """The environment in which a process anywhere finds the package as this one does."""
    found = os.pathsep.join(str(Path(place).resolve()) for place in sys.path if place)
    return {**os.environ, "PYTHONPATH": found, **changes}


def run_alone(
    directory: Path, *arguments: str, before: str = "", **changes: str
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, in a directory; `changes` are to the environment."""
    return subprocess.run(
        command(*arguments, before=before),
        cwd=directory,
        env=environment(**changes),
        capture_output=True,
        text=True,
    )
