"""What is kept for the next start: right or absent, and never in the way."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sexpgpu.serve import kept
from sexpgpu.serve.kept import Kept


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
