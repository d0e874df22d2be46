"""The cache is where the user says, or where the system keeps such things."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import platformdirs
import pytest

from sexpgpu.export.storage.folders import cache_directory
from sexpgpu.schemas.errors import SexpgpuError


def test_what_the_user_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "mine"))
    assert cache_directory() == tmp_path / "mine"


@pytest.mark.parametrize("base", [None, "", "  ", "/somewhere/else"])
def test_where_the_system_keeps_it(monkeypatch: pytest.MonkeyPatch, base: str | None) -> None:
    monkeypatch.delenv("SEXPGPU_CACHE", raising=False)
    if base is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert cache_directory() == Path(platformdirs.user_cache_dir("sexpgpu"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system says where it is")
def test_one_that_depends_on_where_a_command_is_called_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SEXPGPU_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "some/where")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_directory() == Path("/home/someone/.cache/sexpgpu")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system says where it is")
def test_there_is_none_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEXPGPU_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    # As it is for a user whom the system does not know, without $HOME.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(SexpgpuError, match="no home directory") as caught:
        cache_directory()
    assert caught.value.code == "E-FILE-001"
    assert "$SEXPGPU_CACHE" in (caught.value.help or "")
