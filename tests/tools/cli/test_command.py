"""The command as a whole: exit statuses, errors for people and for programs, and no tracebacks."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sexpgpu.tools import cli

RUN = [sys.executable, "-m", "sexpgpu.tools.cli"]


def _status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    code = caught.value.code
    assert isinstance(code, int)
    return code


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert _status("exprot") == 2
    shown = capsys.readouterr().err
    assert "error[E-USAGE-001]: there is no command `exprot`; did you mean `export`?" in shown


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["check"], "missing argument"),
        (["check", "a.sx", "--knobs", "dim=3"], "no such option"),
        (["export", "a.sx"], "-o"),
        (["export", "a.sx", "-o", "out", "--batch", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage_shows_how_it_is_used(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status(*arguments) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error[E-USAGE-001]: ")
    assert part in shown
    assert f"help: Usage: sexpgpu {arguments[0]}" in shown


def test_an_error_is_data_too_where_a_program_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "wrong.sx"
    program.write_text("(def model\n  (linaer 3 4))")
    assert _status("check", str(program), "--json") == 1
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert (error["code"], error["line"], error["column"]) == ("E-NAME-001", 2, 4)
    assert "linear" in error["help"]
    assert "error[E-NAME-001]" in shown.err


def test_a_fault_of_our_own_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("thought impossible")

    monkeypatch.setattr(cli.cli, "main", fail)
    assert _status("check", "a.sx") == 1
    shown = capsys.readouterr().err
    assert "error[E-INTERNAL-001]" in shown
    assert "ZeroDivisionError: thought impossible" in shown
    assert "Traceback" not in shown
    monkeypatch.setenv("SEXPGPU_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["check", "a.sx"])


def test_ctrl_c_ends_with_130() -> None:
    kill = f"lambda *words, **options: os.kill(os.getpid(), {int(signal.SIGINT)})"
    code = f"import os, sexpgpu.tools.cli as cli; cli.cli.main = {kill}; cli.main([])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == "sexpgpu: stopped by SIGINT\n"


def test_a_reader_that_goes_away_costs_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*RUN, "explain", "E-READ-001"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_explain_says_what_a_code_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert _status("explain", "e-shape-002") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("E-SHAPE-002: the batch dimension cannot be used so\n\n")
    assert max(map(len, shown.split("\n"))) <= 80


def test_explain_suggests_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert _status("explain", "E-SHAP-002") == 2
    assert "E-SHAPE-002" in capsys.readouterr().err


def test_the_version_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"sexpgpu": "1.2.3"}.__getitem__)
    assert _status("--version") == 0
    assert capsys.readouterr().out == "sexpgpu 1.2.3\n"


def test_a_checkout_that_is_not_installed_has_no_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert _status("--version") == 0
    assert "not installed" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _status(name, "--help") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: sexpgpu {name} ")
    assert not [line for line in shown.split("\n") if len(line) > 80]
