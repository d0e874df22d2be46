"""The socket's path: what is replaced, what is refused, what is left behind."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import endpoint
from sexpgpu.serve.endpoint import Endpoint
from sexpgpu.tools import cli
from support.permissions import OBEY_PERMISSIONS, needs_permissions
from support.serving import serve_process, start, write_onnx


def refusal(path: Path) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        Endpoint(path, 0o600).listen()
    return caught.value


def stale(path: Path) -> None:
    """What a process that was killed leaves behind."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def test_it_listens_and_leaves_nothing(tmp_path: Path) -> None:
    place = Endpoint(tmp_path / "s", 0o600)
    with place.listen() as listener:
        assert not listener.getblocking()
        assert connects(place.path)
        assert [path.name for path in tmp_path.iterdir()] == ["s"]
    place.remove()
    assert list(tmp_path.iterdir()) == []
    place.remove()


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666, 0o700])
def test_its_mode_is_the_one_asked_for_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        with Endpoint(tmp_path / "s", mode).listen():
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == mode
    finally:
        os.umask(before)


def test_a_socket_that_nobody_serves_is_replaced(tmp_path: Path) -> None:
    stale(tmp_path / "s")
    with Endpoint(tmp_path / "s", 0o600).listen():
        assert connects(tmp_path / "s")


def test_a_socket_that_another_serves_is_refused(tmp_path: Path) -> None:
    with Endpoint(tmp_path / "s", 0o600).listen():
        error = refusal(tmp_path / "s")
        assert error.code == "E-SERVE-001"
        assert connects(tmp_path / "s")


def test_a_server_that_is_busy_is_there(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as queued:
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        queued.connect(str(tmp_path / "s"))
        assert refusal(tmp_path / "s").code == "E-SERVE-001"


@pytest.mark.parametrize("kind", ["file", "folder", "link to nothing", "link to a socket", "fifo"])
def test_anything_else_is_refused_and_left(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "target")
        if kind == "link to a socket":
            stale(tmp_path / "target")
    before = path.lstat()
    assert refusal(path).code == "E-SERVE-002"
    assert path.lstat().st_ino == before.st_ino
    assert path.lstat().st_mode == before.st_mode


def test_paths_where_none_can_be(tmp_path: Path) -> None:
    error = refusal(tmp_path / "missing" / "s")
    assert (error.code, error.came) == ("E-SERVE-003", "its folder does not exist")
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file" / "s").code == "E-SERVE-003"
    error = refusal(Path("/") / ("x" * 107))
    assert (error.code, error.came) == ("E-SERVE-003", "a socket's path has at most 107 bytes")
    error = refusal(Path("/") / ("ü" * 54))
    assert error.came == "a socket's path has at most 107 bytes"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder of /proc refuses root as well."""
    error = refusal(Path("/proc/self/s"))
    assert error.code == "E-SERVE-003"
    assert list(tmp_path.iterdir()) == []


@needs_permissions
def test_a_folder_that_cannot_be_written_is_told_before_a_model_is_loaded(
    model: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o555)
    process = start("serve", str(model), "--socket", str(tmp_path / "s"), before=OBEY_PERMISSIONS)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert errors == (
        f"error[E-SERVE-003]: no socket can be made at {tmp_path}/s\n"
        " = came: its folder cannot be written\n"
    )


def test_what_a_killed_process_left_half_made_is_replaced(tmp_path: Path) -> None:
    stale(tmp_path / ".s.new")
    place = Endpoint(tmp_path / "s", 0o600)
    with place.listen():
        assert [path.name for path in tmp_path.iterdir()] == ["s"]
    place.remove()
    (tmp_path / ".s.new").write_text("precious")
    assert refusal(tmp_path / "s").came == "Address already in use"
    assert (tmp_path / ".s.new").read_text() == "precious"


def test_the_longest_path(tmp_path: Path) -> None:
    """There is no room for another name beside it."""
    folder = tmp_path / ("d" * (104 - len(str(tmp_path)) - 1))
    folder.mkdir()
    path = folder / "ss"
    assert len(str(path)) == 107
    for _ in range(2):
        place = Endpoint(path, 0o600)
        with place.listen():
            assert connects(path)
        assert path.is_socket()
    place.remove()
    assert list(folder.iterdir()) == []


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = Endpoint(Path("s"), 0o600)
    with place.listen():
        assert connects(tmp_path / "s")
    place.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_socket_of_another_is_not_removed(tmp_path: Path) -> None:
    place = Endpoint(tmp_path / "s", 0o600)
    with place.listen():
        (tmp_path / "s").unlink()
        time.sleep(0.01)
        with Endpoint(tmp_path / "s", 0o600).listen():
            place.remove()
            assert connects(tmp_path / "s")
    (tmp_path / "s").unlink()
    (tmp_path / "s").write_text("precious")
    place.remove()
    assert (tmp_path / "s").read_text() == "precious"


def test_of_many_that_start_at_once_one_serves(tmp_path: Path) -> None:
    stale(tmp_path / "s")
    listeners: list[socket.socket] = []
    codes: list[str] = []
    barrier = threading.Barrier(8)

    def race() -> None:
        barrier.wait()
        try:
            listeners.append(Endpoint(tmp_path / "s", 0o600).listen())
        except SexpgpuError as error:
            codes.append(error.code)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(listeners) == 1
    assert codes == ["E-SERVE-001"] * 7
    assert connects(tmp_path / "s")
    listeners[0].close()


def test_whoever_keeps_the_folder_locked_does_not_keep_it_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_LOCK_SECONDS", 0.1)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with Endpoint(tmp_path / "s", 0o600).listen():
            assert connects(tmp_path / "s")
    finally:
        os.close(descriptor)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    return write_onnx(path, "float[N] x", "float[N] y", "y = Neg (x)")


def test_the_command_says_so(model: Path, tmp_path: Path) -> None:
    with serve_process(model, tmp_path / "s", "--mode", "0640") as server:
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o640
        second = start("serve", str(model), "--socket", str(tmp_path / "s"))
        out, errors = second.communicate(timeout=60)
        assert (second.returncode, out) == (1, "")
        assert errors.startswith("error[E-SERVE-001]: another process serves")
        with server.connect() as wire:
            assert wire.call(b"\0\0\x80\x3f") == b"\0\0\0\x80\xbf"


@pytest.mark.parametrize("mode", ["8", "rw", "1777", "-1"])
def test_a_mode_that_is_none(model: Path, tmp_path: Path, mode: str) -> None:
    process = start("serve", str(model), "--socket", str(tmp_path / "s"), f"--mode={mode}")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.startswith("error[E-USAGE-001]")


def test_a_system_without_epoll(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(select, "epoll")
    with pytest.raises(SystemExit):
        cli.main(["serve", str(model), "--socket", str(tmp_path / "s")])
    shown = capsys.readouterr().err
    assert shown.startswith("error[E-SERVE-003]: serve waits on its clients with epoll")
    assert "sexpgpu.serve.load" in shown
