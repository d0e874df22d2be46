"""The live display, on a pseudo-terminal that shows what a person would see."""

from __future__ import annotations

import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from sexpgpu.tools.train.live import LiveProgress
from sexpgpu.tools.train.progress import Progress, open_progress
from support.commands import environment
from support.later import Later
from support.terminal import Terminal


@pytest.fixture(autouse=True)
def _kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    # What a shell exports is not how wide the terminal is.
    monkeypatch.setenv("COLUMNS", "33")


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def opened(terminal: Terminal, total: int = 200) -> Progress:
    progress = open_progress(
        terminal.stream, total=total, start=0, unit="tokens", per_step=64, title="char-gpt"
    )
    assert isinstance(progress, LiveProgress)
    return progress


def test_a_run_as_it_is_seen(terminal: Terminal) -> None:
    with opened(terminal) as progress:
        terminal.wait_for(lambda screen: "0/200" in screen.line(0))
        progress.note("compiling [bold]the step :smile:")
        for step in range(1, 101):
            progress.step(step, {"loss": 2.0, "learning_rate": 3e-4})
        terminal.wait_for(lambda screen: "100/200" in screen.line(1))
        terminal.wait_for(lambda screen: screen.lines[2:] == ["loss 2.000   lr 3e-4"])
        progress.evaluated(100, {"loss": 2.5})
        progress.saved(100, "runs/a/step-00000100")
        for step in range(101, 201):
            progress.step(step, {"loss": 1.0})
        progress.note("a path of some length: " + "x" * 120)
    terminal.wait_for(lambda screen: "200/200" in screen.line(3))
    lines = terminal.screen.lines
    assert lines[0] == "compiling [bold]the step :smile:"
    assert lines[1] + lines[2] == "a path of some length: " + "x" * 120
    assert "━" * 40 in lines[3]
    assert "took" in lines[3]
    assert lines[5:] == ["evaluation 100: loss 2.500   saved 100"]
    assert terminal.screen.cursor_shown


def test_a_terminal_may_become_narrow_and_wide_again(terminal: Terminal) -> None:
    with opened(terminal) as progress:
        progress.note("first")
        progress.evaluated(1, {"loss": 2.5, "accuracy": 0.5, "perplexity": 12.0})
        for index, width in enumerate((50, 30, 12, 80, 20, 100), 1):
            progress.step(index, {"loss": 2.0, "accuracy": 0.25, "perplexity": 7.0})
            terminal.resize(width)
            expected = f"{index}/200"
            terminal.wait_for(lambda screen, text=expected: text in "".join(screen.lines))  # type: ignore[misc] # a default
            time.sleep(0.3)
            terminal.wait_for(lambda screen: sum("/200" in line for line in screen.lines) == 1)
            assert terminal.screen.line(0) == "first"
            assert len(terminal.screen.lines) <= 6


def test_the_values_of_a_device_are_not_waited_for(terminal: Terminal) -> None:
    scalars = [Later(float(step)) for step in range(1, 4)]
    with opened(terminal) as progress:
        for step, scalar in enumerate(scalars, 1):
            progress.step(step, {"loss": scalar})
        scalars[0].arrive()
        terminal.wait_for(lambda screen: "loss 1.000" in screen.lines)
    assert [scalar.waits for scalar in scalars] == [0, 0, 0]


def test_a_device_that_fails_ends_nothing(terminal: Terminal) -> None:
    failed = Later(1.0, fault=RuntimeError("the device is gone"))
    failed.arrive()
    with opened(terminal) as progress:
        progress.step(1, {"loss": failed})
        terminal.wait_for(lambda screen: "1/200" in screen.line(0))


def test_what_is_printed_meanwhile_stands_above(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    with opened(terminal) as progress:
        progress.step(1, {"loss": 1.0})
        print("a warning: old numbers", file=sys.stderr)
        assert sys.stderr is not terminal.stream
        terminal.wait_for(lambda screen: "1/200" in screen.line(-2))
    assert sys.stderr is terminal.stream
    terminal.wait_for(lambda screen: screen.line(0) == "a warning: old numbers")
    assert sum("/200" in line for line in terminal.screen.lines) == 1


def test_what_is_printed_elsewhere_stays_there(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(terminal) as progress:
        print("a result")
        progress.note("a note")
    assert capsys.readouterr().out == "a result\n"
    terminal.wait_for(lambda screen: screen.line(0) == "a note")
    assert "a result" not in terminal.text


def test_a_terminal_that_goes_away_ends_nothing() -> None:
    terminal = Terminal()
    with opened(terminal) as progress:
        terminal.hang_up()
        for step in range(1, 6):
            progress.step(step, {"loss": 1.0})
            progress.note("nobody reads this")
            time.sleep(0.05)
        progress.saved(5, "x")
    progress.close()
    terminal.close()


def test_drawing_takes_little_time(terminal: Terminal) -> None:
    with opened(terminal, total=10**9) as progress:
        end = time.monotonic() + 1
        step = 0
        while time.monotonic() < end:
            step += 1
            progress.step(step, {"loss": 1.0})
            time.sleep(0.001)
    # Ten times a second at most, and once when it ends.
    assert 1 <= terminal.text.count("char-gpt") <= 14


_RUN = """
import sys, time
from sexpgpu.tools.train.progress import open_progress
with open_progress(sys.stderr, total=1000, start=0, unit="records", per_step=1, title="net") as p:
    for step in range(1, 1001):
        p.step(step, {"loss": 1.0})
        time.sleep(0.02)
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_the_terminal_as_it_was(
    terminal: Terminal, kind: signal.Signals
) -> None:
    before = termios.tcgetattr(terminal.slave)
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN],
        stderr=terminal.slave,
        env=environment(TERM="xterm", PYTHONIOENCODING="utf-8"),
    )
    terminal.wait_for(lambda screen: "loss 1.000" in screen.lines[1:])
    run.send_signal(kind)
    assert run.wait(20) != 0
    if kind is signal.SIGINT:
        terminal.wait_for(lambda screen: screen.line(-1) == "KeyboardInterrupt")
    assert terminal.screen.cursor_shown
    # The one time that rich hides the cursor it is shown again before anything else.
    assert terminal.screen.hidden == 1
    assert b"\\x1b[?25l\\x1b[?25h".decode("unicode_escape") in terminal.text
    assert sum("/1,000" in line for line in terminal.screen.lines) == 1
    assert termios.tcgetattr(terminal.slave) == before
