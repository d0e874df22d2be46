"""The cache is where the user says, or where the system keeps such things."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from sexpgpu.export.storage.folders import cache_directory


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
