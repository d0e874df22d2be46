"""Environments: set up once, and anew where other packages are wanted."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from sexpgpu.tools.portability import environments
from sexpgpu.tools.portability.environments import Unavailable, find, install, interpreter
from sexpgpu.tools.portability.runtime import Runtime

_GIVEN: dict[str, Any] = {
    **dict.fromkeys((field.name for field in fields(Runtime)), ()),
    "name": "fake",
    "packages": ("fake==1",),
    "runner": Path("fake_runner.py"),
}
PYTHON = Runtime(**_GIVEN)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would be run."""
    made: list[list[str]] = []
    monkeypatch.setattr(environments, "_call", lambda words, place: made.append(words))
    return made


def test_pip_is_asked_once(calls: list[list[str]], tmp_path: Path) -> None:
    assert find(PYTHON, tmp_path) is None
    place = install(PYTHON, tmp_path)
    assert place == tmp_path / "fake"
    assert calls[0][:3] == [sys.executable, "-m", "venv"]
    assert calls[1][0] == interpreter(PYTHON, place)
    assert calls[1][-2:] == ["numpy", "fake==1"]
    assert not any("://" in word for words in calls for word in words)
    assert install(PYTHON, tmp_path) == find(PYTHON, tmp_path) == place
    assert len(calls) == 2


def test_other_packages_are_another_environment(calls: list[list[str]], tmp_path: Path) -> None:
    install(PYTHON, tmp_path)
    newer = replace(PYTHON, packages=("fake==2",))
    assert find(newer, tmp_path) is None
    install(newer, tmp_path)
    assert len(calls) == 4


def test_npm_is_asked_for_what_node_runs(calls: list[list[str]], tmp_path: Path) -> None:
    runtime = replace(PYTHON, packages=("fake@1",), runner=Path("fake_runner.mjs"))
    place = install(runtime, tmp_path)
    assert calls[0][:2] == ["npm", "install"]
    assert "--ignore-scripts" in calls[0]
    assert calls[0][-1] == "fake@1"
    assert interpreter(runtime, place) == "node"


def test_what_cannot_be_installed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="there is no no-such-program"):
        environments._call(["no-such-program"], tmp_path)
    failing = [sys.executable, "-c", "print('ERROR: no fake==1'); raise SystemExit(1)"]
    with pytest.raises(Unavailable, match="ERROR: no fake==1"):
        environments._call(failing, tmp_path)
    monkeypatch.setattr(environments, "_SECONDS", 0.2)
    with pytest.raises(Unavailable, match="took longer than"):
        environments._call([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path)

    def refuse(words: list[str], place: Path) -> None:
        raise Unavailable("no network")

    monkeypatch.setattr(environments, "_call", refuse)
    with pytest.raises(Unavailable, match="no network"):
        install(PYTHON, tmp_path)
    assert find(PYTHON, tmp_path) is None


def test_a_program_that_the_system_must_have(calls: list[list[str]], tmp_path: Path) -> None:
    runtime = replace(PYTHON, programs=("no-such-browser",))
    with pytest.raises(Unavailable, match="there is no no-such-browser"):
        install(runtime, tmp_path)
    assert not calls
