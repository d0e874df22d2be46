"""Progress: a bar or lines on a terminal, nothing elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from sexpgpu.export.storage.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("fetching [x]/w.bin", 1000) as advance:
        for _ in range(10):
            advance(100)
    return stream.getvalue()


def test_nothing_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO()) == ""


def test_a_bar_where_rich_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    assert "fetching [x]/w.bin" in shown(monkeypatch, Terminal())


def test_lines_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    lines = shown(monkeypatch, Terminal()).splitlines()
    assert len(lines) == 10
    assert lines[4] == "fetching [x]/w.bin: 50 % of 1,000 bytes"
