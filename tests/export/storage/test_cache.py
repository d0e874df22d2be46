"""The cache: fetched once, verified, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sexpgpu.export.storage.cache import fetch
from sexpgpu.export.storage.folders import cache_directory
from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.checkpoint import StoredFile
from sexpgpu.schemas.errors import SexpgpuError
from support.web import web_server

CONTENT = bytes(range(256)) * 40


def stored(content: bytes = CONTENT, name: str = "w.bin") -> StoredFile:
    return StoredFile(name, len(content), hashlib.sha256(content).hexdigest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def served(tmp_path: Path) -> Path:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "w.bin").write_bytes(CONTENT)
    return tmp_path / "served"


def files(cache: Path) -> list[str]:
    return [name for _, _, names in os.walk(cache) for name in names]


def refusal(location: Location, file: StoredFile) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        fetch(location, file)
    return caught.value


def test_by_default_it_is_in_the_users_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEXPGPU_CACHE", raising=False)
    assert cache_directory().name == "sexpgpu"


def test_a_file_is_fetched_once(cache: Path, served: Path) -> None:
    with web_server(served) as (url, requests):
        location = Location.parse(url) / "w.bin"
        path = fetch(location, stored())
        assert path.read_bytes() == CONTENT
        assert path.name == "w.bin"
        assert fetch(location, stored()) == path
        assert requests == ["/w.bin"]
    assert files(cache) == ["w.bin"]


@pytest.mark.parametrize("damage", [CONTENT[:-1], b"\0" + CONTENT[1:] + b"", b""])
def test_a_damaged_copy_is_fetched_again(cache: Path, served: Path, damage: bytes) -> None:
    damage = damage if damage != CONTENT else b"\1" + CONTENT[1:]
    location = Location.parse(str(served / "w.bin"))
    path = fetch(location, stored())
    path.write_bytes(damage)
    assert fetch(location, stored()).read_bytes() == CONTENT


@pytest.mark.parametrize("other", [CONTENT[:-1], CONTENT + b"1", b"\1" + CONTENT[1:]])
def test_other_content_than_announced_is_refused_and_not_kept(
    cache: Path, served: Path, other: bytes
) -> None:
    (served / "w.bin").write_bytes(other)
    error = refusal(Location.parse(str(served / "w.bin")), stored())
    assert error.code == "E-CKPT-003"
    assert error.place == str(served / "w.bin")
    assert files(cache) == []


def test_no_more_is_read_than_was_announced(cache: Path, tmp_path: Path) -> None:
    """A source without an end."""
    error = refusal(Location.parse("/dev/zero"), stored(b"1234"))
    assert error.code == "E-CKPT-003"
    assert error.came == "more than 4 bytes"


def test_a_file_that_is_not_there_is_the_callers_to_name(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fetch(Location.parse(str(tmp_path / "none")), stored())


def test_a_cache_that_cannot_be_written_is_named(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "file"))
    error = refusal(Location.parse(str(served / "w.bin")), stored())
    assert error.code == "E-FILE-001"
    assert "$SEXPGPU_CACHE" in str(error.help)


def test_a_full_disk_is_seen_before_anything_is_fetched(
    cache: Path, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(served)

    def full(path: Any) -> Any:
        return usage._replace(free=100)

    monkeypatch.setattr(shutil, "disk_usage", full)
    with web_server(served) as (url, requests):
        error = refusal(Location.parse(url) / "w.bin", stored())
        assert error.code == "E-FILE-001"
        assert requests == []
