"""Standard streams that are closed, full or of few letters: an error in a sentence, or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import command, environment

FULL = "error[E-FILE-001]: a file cannot be read or written: No space left on device\n --> stdout\n"


def run(
    redirections: str, *arguments: str, cwd: Path | None = None, **changes: str
) -> subprocess.CompletedProcess[bytes]:
    """A command as a shell runs it with such redirections, stderr kept where they leave it."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirections}', "sh", *command(*arguments)],
        env=environment(**changes),
        cwd=cwd,
        capture_output=True,
    )


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["doctor"], ["doctor", "--json"], ["explain", "E-READ-001"]],
    ids=" ".join,
)
def test_what_stdout_does_not_take_is_an_error(arguments: list[str], buffered: str) -> None:
    done = run(">/dev/full", *arguments, PYTHONUNBUFFERED=buffered)
    assert done.returncode == 1
    # Where nothing is kept back, it is not known which of the files it was.
    assert done.stderr.decode() in (FULL, FULL.removesuffix(" --> stdout\n"))


@pytest.mark.parametrize("redirections", [">&-", ">&- <&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_streams_are_no_obstacle(redirections: str) -> None:
    done = run(redirections, "explain", "E-READ-001")
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout.startswith(b"" if ">&- " in f"{redirections} " else b"E-READ-001: ")


@pytest.mark.parametrize("redirections", ["2>&-", "2>/dev/full", ">&- 2>/dev/full"])
def test_an_error_that_nobody_sees_has_its_status(redirections: str) -> None:
    for arguments, status in ((["exprot"], 2), (["inspect", "nowhere"], 1)):
        done = run(redirections, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


def test_both_streams_full(tmp_path: Path) -> None:
    done = run(">/dev/full 2>/dev/full", "inspect", "nowhere", "--json")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    code = (
        "import os, sys; from sexpgpu.tools.cli.streams import prepare; prepare()\n"
        "found = [os.readlink(f'/proc/self/fd/{number}') for number in range(3)]\n"
        "kept = all(map(os.get_inheritable, range(3)))\n"
        "open('found', 'w').write(f'{kept} {set(found)}')"
    )
    closing = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    subprocess.run(closing, cwd=tmp_path, env=environment(), check=True)
    assert (tmp_path / "found").read_text() == "True {'/dev/null'}"


def test_what_an_encoding_lacks_is_written_in_another_way(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xc3\xbc.onnx")
    done = run("", "inspect", name, "--json", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert b"E-" in done.stdout
    assert b"Traceback" not in done.stderr
    assert b"E-INTERNAL" not in done.stderr


def test_a_file_that_may_not_be_read_is_no_fault_of_ours(tmp_path: Path) -> None:
    code = (
        "import sexpgpu.tools.cli as cli\n"
        "def fail(*words, **options): raise PermissionError(13, 'Permission denied', 'the file')\n"
        "cli.cli.main = fail\n"
        "cli.main(['check', 'a.sx'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "error[E-FILE-001]: a file cannot be read or written: Permission denied\n --> the file\n"
    )
