"""Each runtime in an environment of its own, set up once by pip or npm as the user has them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from sexpgpu.tools.portability import WORK
from sexpgpu.tools.portability.runtime import Runtime

_SECONDS = 1800


class Unavailable(Exception):
    """A runtime that cannot be installed, and why."""


def find(runtime: Runtime, work: Path = WORK) -> Path | None:
    """The runtime's environment, where it is set up as it would be now."""
    place = work / runtime.name
    stamp = place / "installed"
    return place if stamp.exists() and stamp.read_text() == _wanted(runtime) else None


def install(runtime: Runtime, work: Path = WORK) -> Path:
    """The runtime's environment, set up where it is not.  Raises Unavailable with why not."""
    if runtime.programs and not any(map(shutil.which, runtime.programs)):
        program = runtime.programs[0]
        raise Unavailable(f"there is no {program}; `apt-get install {program}` on Debian")
    place = find(runtime, work)
    if place is None:
        place = work / runtime.name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if runtime.is_node:
            (place / "package.json").write_text('{"private": true, "type": "module"}')
            # What these packages would run is a download of what a GPU needs.
            words = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
            _call([*words, *runtime.packages], place)
        else:
            _call([sys.executable, "-m", "venv", "--clear", str(place)], place)
            words = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "numpy"]
            _call([*words, *runtime.packages], place)
        (place / "installed").write_text(_wanted(runtime))
    return place


def interpreter(runtime: Runtime, place: Path) -> str:
    """What runs a script in the environment."""
    return "node" if runtime.is_node else str(place / "bin" / "python")


def _wanted(runtime: Runtime) -> str:
    return "\n".join(runtime.packages)


def _call(words: list[str], place: Path) -> None:
    try:
        done = subprocess.run(
            words,
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
    except FileNotFoundError:
        raise Unavailable(f"there is no {words[0]}") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{words[0]} took longer than {_SECONDS} seconds") from None
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "ERR" in line.upper()]
        raise Unavailable(" ".join(lines[-1:]) or f"{words[0]} failed")
