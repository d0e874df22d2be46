"""The README's commands do what it says, one after the other, in a directory of their own.

Those of the shell run in one shell, as a reader's do: what one starts in the background is there
for the next.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sexpgpu.tools import develop
from sexpgpu.tools.fetch_models import fetch_model

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "end of block"
_SECONDS = 900
_SET_UP = "python3 tools/develop.py "


def _blocks() -> list[tuple[str, str]]:
    return _BLOCK.findall((ROOT / "README.md").read_text("utf-8"))


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """What each block of commands printed, errors too, and what the README shows of it."""
    here = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "examples", here / "examples")
    # The first command, which sets up, has fetched this.
    (here / "build/models").mkdir(parents=True)
    (here / "build/models/minilm").symlink_to(fetch_model("minilm")["config.json"].parent.resolve())
    programs = here / "bin"
    programs.mkdir()
    for name, words in (("sexpgpu", "-m sexpgpu.tools.cli "), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        (programs / name).chmod(0o755)
    path = [str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path),
        "COLUMNS": "100",
    }
    found: list[tuple[str, str]] = []
    blocks = _blocks()
    with _Shell(here, environment) as shell:
        for (kind, text), (next_kind, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
            if kind == "sh" and not text.startswith(_SET_UP):
                found.append((shell.run(text), shown if next_kind == "text" else ""))
            elif kind == "python":
                command = [sys.executable, "-c", text]
                done = subprocess.run(
                    command, cwd=here, env=environment, capture_output=True, text=True
                )
                assert done.returncode == 0, f"{text}\n{done.stderr}"
                lines = re.findall(r"\)  # (.*)$", text, re.MULTILINE)
                found.append((done.stdout, "".join(f"{line}\n" for line in lines)))
    return found


class _Shell:
    """A shell that runs one block after the other, and ends with what it has in the background."""

    def __init__(self, here: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["sh", "-e"],
            cwd=here,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, text: str) -> str:
        """What a block printed, errors too."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{text}\necho {_END}\n")
        self._process.stdin.flush()
        printed = ""
        limit = threading.Timer(_SECONDS, self._kill)
        limit.start()
        for line in self._process.stdout:
            if line == f"{_END}\n":
                limit.cancel()
                return printed
            printed += line
        limit.cancel()
        raise AssertionError(f"the shell ended, or took too long, in\n{text}\n{printed}")

    def __enter__(self) -> _Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._process.communicate()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def test_every_command_prints_what_is_shown(outputs: list[tuple[str, str]]) -> None:
    assert len(outputs) >= 13
    for printed, shown in outputs:
        assert shown
        assert _pattern(shown).fullmatch(printed), f"shown:\n{shown}\nprinted:\n{printed}"


def _pattern(shown: str) -> re.Pattern[str]:
    """`…` stands for any number of lines on a line by itself, else for the rest of the line."""
    lines = []
    for line in shown.rstrip("\n").split("\n"):
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*".join(map(re.escape, line.split("…"))) + r"\n")
    return re.compile("".join(lines) + r"(?:.*\n)*" if "…" in shown else "".join(lines))


def test_the_commands_that_set_up_exist() -> None:
    set_ups = [text for kind, text in _blocks() if kind == "sh" and text.startswith(_SET_UP)]
    assert [text.removeprefix(_SET_UP) for text in set_ups] == ["demo\n", "test\n"]
    assert (ROOT / "tools" / "develop.py").is_file()
    assert all(hasattr(develop, text.removeprefix(_SET_UP).strip()) for text in set_ups)
