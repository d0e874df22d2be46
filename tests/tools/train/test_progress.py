"""Which progress is opened: a live one on a terminal that can show it, else lines."""

from __future__ import annotations

import io
import sys

import pytest

from sexpgpu.tools.train.lines import LineProgress
from sexpgpu.tools.train.progress import Progress, open_progress


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment] # it is read only in the class above

    def isatty(self) -> bool:
        return True


def opened(stream: io.StringIO) -> Progress:
    with open_progress(
        stream, total=10, start=0, unit="records", per_step=2, title="net"
    ) as progress:
        progress.step(1, {"loss": 1.0})
    return progress


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_lines_where_it_is_no_terminal() -> None:
    stream = io.StringIO()
    assert isinstance(opened(stream), LineProgress)
    assert stream.getvalue() == "net: 10 steps of 2 records\nstep 1/10: loss 1.000\n"


def test_a_live_display_on_a_terminal() -> None:
    stream = Terminal()
    assert not isinstance(opened(stream), LineProgress)
    assert "1/10" in stream.getvalue()


def test_lines_where_rich_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "rich" or name.endswith((".train.live", ".train.panel")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    stream = Terminal()
    assert isinstance(opened(stream), LineProgress)
    assert "step 1/10: loss 1.000\n" in stream.getvalue()


def test_lines_where_the_terminal_cannot_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ascii(Terminal):
        encoding = "ascii"  # type: ignore[assignment] # as above

    assert isinstance(opened(Ascii()), LineProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(opened(Terminal()), LineProgress)
