"""What is kept for the next start: right or absent, and never in the way."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sexpgpu.serve import kept
from sexpgpu.serve.kept import Kept
from support.commands import environment


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kind"


def test_it_is_read_as_it_was_written(cache: Path) -> None:
    assert Kept("kind", b"from").read() is None
    Kept("kind", b"from").write(b"made")
    assert Kept("kind", b"from").read() == b"made"
    assert Kept("kind", b"other").read() is None
    Kept("kind", b"from").write(b"made anew")
    assert Kept("kind", b"from").read() == b"made anew"
    assert len(list(cache.iterdir())) == 1
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_the_same_sum_is_not_the_same_thing(cache: Path) -> None:
    Kept("kind", b"from").write(b"made")
    (entry,) = cache.iterdir()
    other = Kept("kind", b"something else")
    other.write(b"x")
    entry.replace(next(path for path in cache.iterdir() if path != entry))
    assert other.read() is None


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", b"\x81\xa4made\xc4\x01x"])
def test_a_damaged_entry_is_none(cache: Path, data: bytes) -> None:
    Kept("kind", b"from").write(b"made")
    (entry,) = cache.iterdir()
    entry.write_bytes(data)
    assert Kept("kind", b"from").read() is None


def test_what_is_too_large_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kept("kind", b"from").write(b"made" * 100)
    monkeypatch.setattr(kept, "_LARGEST", 100)
    assert Kept("kind", b"from").read() is None
    Kept("kind", b"other").write(b"made" * 100)
    assert len(list(cache.iterdir())) == 1


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "file"))
    Kept("kind", b"from").write(b"made")
    assert Kept("kind", b"from").read() is None


def test_what_was_made_has_its_sum(cache: Path) -> None:
    """A disk that lost power may have kept the length of a file and not what it held."""
    Kept("kind", b"from").write(b"made")
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(whole.replace(b"\xc4\x04made", b"\xc4\x04\0\0\0\0"))
    assert entry.read_bytes() != whole
    assert Kept("kind", b"from").read() is None
    Kept("kind", b"from").write(b"made")
    assert entry.read_bytes() == whole


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o1777])
def test_a_folder_where_others_may_write_is_not_used(cache: Path, mode: int) -> None:
    Kept("kind", b"from").write(b"made")
    cache.chmod(mode)
    assert Kept("kind", b"from").read() is None
    Kept("kind", b"other").write(b"made")
    assert len(list(cache.iterdir())) == 1
    cache.chmod(0o755)
    assert Kept("kind", b"from").read() == b"made"


def test_an_entry_that_others_may_have_written_is_not_used(cache: Path) -> None:
    Kept("kind", b"from").write(b"made")
    (entry,) = cache.iterdir()
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    entry.chmod(0o666)
    assert Kept("kind", b"from").read() is None
    Kept("kind", b"from").write(b"made anew")
    assert Kept("kind", b"from").read() == b"made anew"


def test_what_is_another_users_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kept("kind", b"from").write(b"made")
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    assert Kept("kind", b"from").read() is None
    Kept("kind", b"other").write(b"made")
    assert len(list(cache.iterdir())) == 1


def test_a_link_in_the_place_of_a_folder_is_not_followed(cache: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    cache.parent.mkdir()
    cache.symlink_to(precious)
    Kept("kind", b"from").write(b"made")
    assert list(precious.iterdir()) == []
    assert Kept("kind", b"from").read() is None


def test_the_cache_itself_may_be_elsewhere(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    cache.parent.symlink_to(tmp_path / "elsewhere")
    Kept("kind", b"from").write(b"made")
    assert Kept("kind", b"from").read() == b"made"


@pytest.mark.parametrize("what", ["link", "fifo", "folder"])
def test_what_is_no_file_is_no_entry(cache: Path, what: str) -> None:
    Kept("kind", b"from").write(b"made")
    (entry,) = cache.iterdir()
    if what == "link":
        entry.replace(cache.parent / "moved")
        entry.symlink_to(cache.parent / "moved")
    else:
        entry.unlink()
        os.mkfifo(entry) if what == "fifo" else entry.mkdir()
    assert Kept("kind", b"from").read() is None
    Kept("kind", b"from").write(b"made")
    assert (Kept("kind", b"from").read() is None) == (what == "folder")


def test_other_files_are_left(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_ENTRIES", 1)
    cache.mkdir(parents=True)
    others = ["precious", ".hidden", "0123456", "0123456789", "ABCDEF01", ".1", ".1-2-3"]
    for name in others:
        (cache / name).write_text(name)
        os.utime(cache / name, (1, 1))
    for number in range(3):
        Kept("kind", bytes([number])).write(b"made")
    assert {path.name for path in cache.iterdir()} > set(others)
    assert len(list(cache.iterdir())) == len(others) + 1


def test_there_is_none_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEXPGPU_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    Kept("kind", b"from").write(b"made")
    assert Kept("kind", b"from").read() is None
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    """Of files, the process may write so many bytes."""
    code = (
        "import resource, sys; from sexpgpu.serve.kept import Kept\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "Kept('kind', b'small').write(b'made')\n"
        "Kept('kind', b'large').write(bytes(200_000))\n"
        "print(Kept('kind', b'small').read(), Kept('kind', b'large').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'made' None\n", "")
    assert len(list(cache.iterdir())) == 1


WRITING = """
import sys
from sexpgpu.serve.kept import Kept
print(flush=True)
while True:
    for made in (b"1", b"2"):
        Kept("kind", b"from").write(made * 300_000)
"""


def test_writers_that_are_killed_leave_whole_entries(cache: Path) -> None:
    """Two write the same entry at a time, and are killed at some moment."""
    draw = random.Random(0)
    whole = [b"1" * 300_000, b"2" * 300_000]
    for _ in range(8):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITING], env=environment(), stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        while Kept("kind", b"from").read() is None:
            assert all(writer.poll() is None for writer in writers)
        end = time.monotonic() + draw.random() / 50
        while time.monotonic() < end:
            assert Kept("kind", b"from").read() in whole
        for writer in writers:
            writer.kill()
            writer.communicate()
        assert Kept("kind", b"from").read() in whole
    # What they had begun goes with the next that is written.
    Kept("kind", b"from").write(b"last")
    assert len(list(cache.iterdir())) == 1


def test_what_a_killed_process_had_begun_goes_and_what_another_writes_stays(cache: Path) -> None:
    cache.mkdir(parents=True)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive = cache / f".{ended.pid}-1", cache / f".{os.getppid()}-1"
    for path in (dead, alive, cache / f".{10**30}-1"):
        path.write_bytes(b"half")
    Kept("kind", b"from").write(b"made")
    assert alive.exists()
    assert len(list(cache.iterdir())) == 2


def test_threads_write_at_the_same_time(cache: Path) -> None:
    def write(number: int) -> None:
        for _ in range(20):
            Kept("kind", b"from").write(bytes([number]) * 100_000)
            made = Kept("kind", b"from").read()
            if made is None or len(set(made)) != 1:
                wrong.append(made)

    wrong: list[bytes | None] = []
    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(list(cache.iterdir())) == 1


def test_the_oldest_go(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_ENTRIES", 2)
    Kept("kind", b"first").write(b"1")
    (first,) = cache.iterdir()
    os.utime(first, (1, 1))
    Kept("kind", b"second").write(b"2")
    Kept("kind", b"third").write(b"3")
    assert Kept("kind", b"first").read() is None
    assert Kept("kind", b"second").read() == b"2"
    assert Kept("kind", b"third").read() == b"3"
