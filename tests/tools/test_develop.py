"""tools/develop.py runs before anything is installed, under whatever Python there is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from sexpgpu.tools import develop

SCRIPT = Path(develop.__file__).resolve()


def test_it_imports_the_standard_library_only() -> None:
    names = set()
    for node in ast.walk(ast.parse(SCRIPT.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert names
    assert names - sys.stdlib_module_names == set()


@pytest.mark.parametrize("arguments", [[], ["deploy"]])
def test_an_unknown_command_shows_the_commands(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert "develop.py demo" in done.stderr
    assert "develop.py test" in done.stderr


def test_an_old_python_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(develop.sys, "version_info", (3, 10, 4))
    assert develop.main(["demo"]) == 2
    assert "Python 3.11 or newer is needed" in capsys.readouterr().err


@pytest.fixture
def installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A checkout of two files; the commands that setting it up would have run."""
    for package in develop.PACKAGES:
        (tmp_path / package).mkdir()
    (tmp_path / "export" / "one.py").write_text("")
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(develop, "ROOT", tmp_path)
    monkeypatch.setattr(develop, "ENVIRONMENT", tmp_path / "build" / "venv")
    commands: list[list[str]] = []

    def run(command: list[object], **options: object) -> None:
        commands.append([str(word) for word in command])
        (tmp_path / "build" / "venv").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(develop.subprocess, "run", run)
    return commands


def test_setting_up_is_done_once(installs: list[list[str]]) -> None:
    develop.set_up("test")
    assert ["venv" in command for command in installs] == [True, False]
    develop.set_up("test")
    develop.set_up()
    assert len(installs) == 2


def test_a_new_source_file_is_installed(installs: list[list[str]], tmp_path: Path) -> None:
    develop.set_up()
    (tmp_path / "export" / "two.py").write_text("")
    develop.set_up()
    assert ["install" in command for command in installs] == [False, True, True]


def test_extras_add_up(installs: list[list[str]], tmp_path: Path) -> None:
    develop.set_up()
    develop.set_up("test")
    (tmp_path / "pyproject.toml").write_text("# changed")
    develop.set_up()
    projects = [command[command.index("-e") + 1] for command in installs if "-e" in command]
    assert projects == [str(tmp_path), f"{tmp_path}[test]", f"{tmp_path}[test]"]


def test_another_python_gets_a_new_environment(
    installs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    develop.set_up("test")
    monkeypatch.setattr(develop.sys, "version", "3.99.0")
    develop.set_up()
    assert ["venv" in command for command in installs] == [True, False, True, False]
    assert not installs[-1][installs[-1].index("-e") + 1].endswith("[test]")
