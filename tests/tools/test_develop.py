"""tools/develop.py runs before anything is installed, under whatever Python there is."""

from __future__ import annotations

import ast
import os
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


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose commands only print how they are called; `serve` then runs the file `serving`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "sexpgpu"):
        (programs / name).write_text(
            f"#!{sys.executable}\n"
            "import os, sys, time\n"
            f"print('called: {name}', *sys.argv[1:], flush=True)\n"
            "if sys.argv[1] == 'serve': exec(open('serving').read())\n"
            "if os.path.exists('failing'): sys.exit(3)\n"
        )
        (programs / name).chmod(0o755)
    (tmp_path / "serving").write_text(
        "open('pid', 'w').write(str(os.getpid()))\n"
        "print('serving it\\n  device  cpu', flush=True)\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(develop, "ROOT", tmp_path)
    monkeypatch.setattr(develop, "BUILD", tmp_path / "build")
    monkeypatch.setattr(develop, "PROGRAMS", programs)
    monkeypatch.setattr(develop, "set_up", lambda *extras: None)
    monkeypatch.setattr(develop.sys, "platform", "linux")
    monkeypatch.delenv("SEXPGPU_MODELS", raising=False)
    return tmp_path


def _has_ended(checkout: Path) -> bool:
    """Whether the server that was started is gone."""
    try:
        os.kill(int((checkout / "pid").read_text()), 0)
    except ProcessLookupError:
        return True
    return False


EXPORT = "called: sexpgpu export examples/minilm.sx"
SERVE = "called: sexpgpu serve build/demo/minilm --socket build/demo/minilm.sock --output embedding"
CALL = "called: python examples/similarity.py build/demo/minilm.sock"


def test_the_demo_exports_serves_and_calls(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old = checkout / "build" / "demo" / "of-before"
    old.mkdir(parents=True)
    assert develop.main(["demo"]) == 0
    lines = capfd.readouterr().out.split("\n")
    assert [line for line in lines if line.startswith(("called: ", "  device"))] == [
        "called: python -m sexpgpu.tools.fetch_models minilm",
        f"{EXPORT} -o build/demo/minilm",
        "called: sexpgpu inspect build/demo/minilm",
        SERVE,
        "  device  cpu",
        CALL,
    ]
    assert lines[-2:] == [
        "exported, served and called: the model is build/demo/minilm/model.onnx",
        "",
    ]
    assert _has_ended(checkout)
    assert not old.exists()


def test_the_demo_stops_its_server_where_the_call_fails(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (checkout / "serving").write_text("open('failing', 'w')\n" + (checkout / "serving").read_text())
    assert develop.main(["demo"]) == 2
    shown = capfd.readouterr()
    assert CALL in shown.out
    assert "examples/similarity.py build/demo/minilm.sock` ended with status 3" in shown.err
    assert _has_ended(checkout)


def test_the_demo_ends_where_nothing_is_served(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (checkout / "serving").write_text("sys.exit(1)")
    assert develop.main(["demo"]) == 2
    shown = capfd.readouterr()
    assert SERVE in shown.out
    assert CALL not in shown.out
    assert "--output embedding` ended with status 1" in shown.err


def test_the_demo_ends_a_server_that_does_not_stop(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "serving").write_text(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + (checkout / "serving").read_text()
    )
    monkeypatch.setattr(develop, "_STOP_SECONDS", 0.1)
    assert develop.main(["demo"]) == 0
    assert _has_ended(checkout)


def test_the_demo_takes_models_that_are_elsewhere(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEXPGPU_MODELS", "/models")
    assert develop.main(["demo"]) == 0
    assert f"{EXPORT} --knob weights=/models/minilm/model.safetensors -o" in capfd.readouterr().out


def test_the_demo_serves_only_where_that_is_possible(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(develop.sys, "platform", "darwin")
    assert develop.main(["demo"]) == 0
    shown = capfd.readouterr().out
    assert "sexpgpu serve" not in shown
    assert shown.endswith("\nexported: the model is build/demo/minilm/model.onnx\n")
