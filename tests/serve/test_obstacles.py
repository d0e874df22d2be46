"""Disks that are full, places that cannot be written, streams that are closed: serve goes on, or
says in a sentence why not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import Client, load
from support.commands import command, environment, launched
from support.exports import export
from support.permissions import OBEY_PERMISSIONS, needs_permissions
from support.serving import Wire, start

PROGRAM = """
(def record (fields :x (list f32 4)))
(defmodel net () (parts l (linear 4 3)) (apply (x) (l x)))
(def model (net))
"""
#: Files can be written up to so many bytes.
LIMIT_FILES = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))"
X = np.arange(4, dtype=np.float32).reshape(1, 4)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint and an export."""
    folder = tmp_path_factory.mktemp("net")
    export(PROGRAM, folder)
    return folder


@contextmanager
def serving(
    operand: Path,
    path: Path,
    *flags: str,
    redirections: str = "",
    before: str = "",
    cwd: Path | None = None,
    **changes: str | None,
) -> Iterator[subprocess.Popen[str]]:
    """A server as a shell starts it, once it answers.

    `before` is Python that its process runs first, and `changes` are to its environment, where None
    takes a name out.
    """
    found = {k: v for k, v in (environment() | changes).items() if v is not None}
    arguments = command("serve", str(operand), "--socket", str(path), "--device=cpu", *flags)
    process = subprocess.Popen(
        launched(["sh", "-c", f'exec "$@" {redirections}', "sh", *arguments], before),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=found,
    )
    try:
        end = time.monotonic() + 120
        while not path.is_socket():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.communicate()


def call(path: Path) -> bytes:
    with Client(path, timeout=60) as client:
        found: bytes = client.call(X).tobytes()
    return found


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


ENDED = "sexpgpu serve: stopped by SIGTERM, 2 calls in 2 runs\n"


@pytest.mark.parametrize(
    ("redirections", "out", "errors"),
    [
        (">&-", False, True),
        (">/dev/full", False, True),
        ("2>&-", True, False),
        ("2>/dev/full", True, False),
        ("<&- >&- 2>&-", False, False),
        (">/dev/full 2>/dev/full", False, False),
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_streams_that_take_nothing(
    made: Path, tmp_path: Path, redirections: str, out: bool, errors: bool, log: bool
) -> None:
    flags = ["--log-json"] if log else []
    with serving(made / "export", tmp_path / "s", *flags, redirections=redirections) as process:
        want = call(tmp_path / "s")
        with Wire(str(tmp_path / "s")) as wire:
            assert wire.call(b"too short")[0] == 1
        assert call(tmp_path / "s") == want
        status, shown, told = end(process)
    assert status == 128 + signal.SIGTERM
    assert shown.startswith("serving ") if out else shown == ""
    assert told.endswith(ENDED) if errors else told == ""
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_log_on_a_disk_that_becomes_full(made: Path, tmp_path: Path, buffered: str) -> None:
    """Of the file, so many bytes can be written."""
    log = tmp_path / "log"
    with serving(
        made / "export",
        tmp_path / "s",
        "--log-json",
        redirections=f"2>{log}",
        before=LIMIT_FILES.format(1000),
        PYTHONUNBUFFERED=buffered,
    ) as process:
        want = call(tmp_path / "s")
        for _ in range(20):
            assert call(tmp_path / "s") == want
        assert end(process)[0] == 128 + signal.SIGTERM
    lines = log.read_text().split("\n")
    assert 900 < log.stat().st_size <= 1000
    assert [json.loads(line)["event"] for line in lines[:3]] == ["serving", "connected", "closed"]
    assert len([json.loads(line) for line in lines[:-1]]) > 5


def test_no_room_for_the_cache(made: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        with serving(
            made / "export", tmp_path / "s", before=LIMIT_FILES.format(0), SEXPGPU_CACHE=str(cache)
        ) as process:
            call(tmp_path / "s")
            assert end(process)[0] == 128 + signal.SIGTERM
        assert [path for path in cache.glob("**/*") if not path.is_dir()] == []


#: In a space of its own: a disk of such options at $1, and a program that sees it.
_MOUNT = 'mount -t tmpfs -o "$2" none "$1" && shift 2 && exec "$@"'


def on_a_disk(disk: Path, options: str, *arguments: str, **changes: str) -> subprocess.Popen[str]:
    """A command that finds a disk there."""
    return subprocess.Popen(
        ["unshare", "-m", "sh", "-c", _MOUNT, "sh", str(disk), options, *arguments],
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Where a disk can be put."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not shutil.which("unshare") or on_a_disk(folder, "size=4k", "true").wait():
        pytest.skip("this user may mount nothing")
    return folder


def test_a_disk_that_has_no_room_for_a_socket(made: Path, disk: Path) -> None:
    arguments = command("serve", str(made / "export"), "--socket", f"{disk}/s", "--device=cpu")
    process = on_a_disk(disk, "nr_inodes=1", *arguments)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert errors == (
        f"error[E-SERVE-003]: no socket can be made at {disk}/s\n = came: No space left on device\n"
    )


def test_a_disk_that_has_no_room_for_a_cache(made: Path, disk: Path) -> None:
    """For its folders and the socket, and for an entry only as long as that is half written."""
    arguments = command("serve", str(made / "export"), "--socket", f"{disk}/s", "--device=cpu")
    process = on_a_disk(disk, "size=4k,nr_inodes=5", *arguments, SEXPGPU_CACHE=f"{disk}/cache")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("serving ")
    status, _, errors = end(process)
    assert (status, errors) == (128 + signal.SIGTERM, ENDED.replace("2 calls in 2", "0 calls in 0"))


@pytest.mark.parametrize(
    "changes",
    [
        {"HOME": None},
        {"HOME": ""},
        {"HOME": "/proc/nothing"},
        {"HOME": "/dev/null"},
        {"XDG_CACHE_HOME": "/dev/null"},
        {"XDG_CACHE_HOME": "relative", "HOME": "/dev/null"},
        {"SEXPGPU_CACHE": "/dev/null"},
        {"SEXPGPU_CACHE": "/proc/self"},
        {"SEXPGPU_CACHE": "a/" + "x" * 300},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_no_place_for_the_cache(made: Path, tmp_path: Path, changes: dict[str, str | None]) -> None:
    if changes in ({"HOME": None}, {"HOME": ""}):
        # The system knows where this user lives, and so the cache is there.
        changes |= {"XDG_CACHE_HOME": str(tmp_path / "xdg")}
    here = tmp_path / "here"
    here.mkdir()
    found: dict[str, Any] = {"SEXPGPU_CACHE": None, "XDG_CACHE_HOME": None} | changes
    answers = set()
    for operand in (made / "export", made / "run"):
        with serving(operand, tmp_path / "s", cwd=here, **found) as process:
            answers.add(call(tmp_path / "s"))
            status, _, errors = end(process)
        assert status == 128 + signal.SIGTERM
        assert errors == ENDED.replace("2 calls in 2 runs", "1 call in 1 run")
    assert len(answers) == 1
    # A folder that could be made before another could not is all that there may be.
    assert [path for path in here.glob("**/*") if path.name != "a"] == []


@needs_permissions
@pytest.mark.parametrize("mode", [0o000, 0o500, 0o555])
def test_a_cache_that_cannot_be_written(made: Path, tmp_path: Path, mode: int) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=mode)
    with serving(
        made / "export", tmp_path / "s", before=OBEY_PERMISSIONS, SEXPGPU_CACHE=str(cache)
    ) as process:
        call(tmp_path / "s")
        assert end(process)[0] == 128 + signal.SIGTERM
    assert list(cache.iterdir()) == []


@needs_permissions
@pytest.mark.parametrize("file", ["model.json", "params.safetensors", "model.onnx", "."])
def test_what_may_not_be_read(made: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(made / "export", tmp_path / "export")
    operand = tmp_path / "export" / ("model.onnx" if file == "model.onnx" else "")
    (tmp_path / "export" / file).chmod(0)
    process = start("serve", str(operand), "--socket", str(tmp_path / "s"), before=OBEY_PERMISSIONS)
    out, errors = process.communicate(timeout=60)
    (tmp_path / "export" / file).chmod(0o700)
    assert (process.returncode, out) == (1, "")
    assert errors.startswith("error[E-LOC-002]: " if file == "." else "error[E-FILE-001]: ")
    assert "Permission denied" in errors
    assert str(operand) in errors
    assert list(tmp_path.iterdir()) == [tmp_path / "export"]


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("nowhere", "its folder does not exist"),
        ("file", "its folder does not exist"),
        ("/proc/self", "its folder cannot be written"),
    ],
)
def test_no_place_for_the_socket(made: Path, tmp_path: Path, folder: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / folder / "s"
    process = start("serve", str(made / "export"), "--socket", str(path), "--device=cpu")
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert errors == (f"error[E-SERVE-003]: no socket can be made at {path}\n = came: {reason}\n")


def test_the_library_says_what_may_not_be_read(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> Any:
        raise PermissionError(13, os.strerror(13))

    for operand, where in (("export", "prepared"), ("export/model.onnx", "foreign")):
        monkeypatch.setattr(f"sexpgpu.serve.{where}.open", refuse, raising=False)
        with pytest.raises(SexpgpuError) as caught:
            load(str(made / operand))
        assert caught.value.code == "E-FILE-001"
        assert caught.value.message == "cannot read the file: Permission denied"


def test_a_client_without_room_for_its_answer(made: Path, tmp_path: Path) -> None:
    with serving(made / "export", tmp_path / "s"):
        call = command("call", str(tmp_path / "s"), "--input", "inputs=[0, 1, 2, 3]")
        for flags in (["--npy", "output=/dev/full"], []):
            process = subprocess.run(
                ["sh", "-c", '"$@" >/dev/full', "sh", *call, *flags],
                env=environment(),
                capture_output=True,
                text=True,
            )
            assert process.returncode == 1
            assert process.stderr.startswith("error[E-FILE-001]: ")
            assert "No space left on device" in process.stderr
            assert "Traceback" not in process.stderr
