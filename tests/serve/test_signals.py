"""How `sexpgpu serve` stops: exit status, messages, calls in flight, and what is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from support.serving import (
    PATIENCE,
    Process,
    Wire,
    serve_process,
    start,
    wait_until,
    write_onnx,
    write_slow,
)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_slow(tmp_path_factory.mktemp("model") / "slow.onnx")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "quick.onnx"
    return write_onnx(path, "float[N, 2] x", "float[N, 2] y", "y = Neg (x)")


CALL = struct.pack("<ff", 1, 2)
ANSWER = b"\0" + struct.pack("<ff", -1, -2)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_stops_it_as_the_shell_expects(quick: Path, tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    with serve_process(quick, tmp_path / "s") as server, server.connect() as wire:
        assert [wire.call(CALL) for _ in range(3)] == [ANSWER] * 3
        status, errors = server.stop(number)
        assert wire.at_end()
    assert status == 128 + number
    assert errors == f"sexpgpu serve: stopped by {name}, 3 calls in 3 runs\n"
    assert list(tmp_path.iterdir()) == []


def test_it_counts_a_single_call_and_none(quick: Path, tmp_path: Path) -> None:
    with serve_process(quick, tmp_path / "s") as server, server.connect() as wire:
        wire.call(CALL)
        assert server.stop()[1].endswith("SIGTERM, 1 call in 1 run\n")
    with serve_process(quick, tmp_path / "s") as server:
        assert server.stop()[1].endswith("SIGTERM, 0 calls in 0 runs\n")


def test_events_are_lines_of_json(quick: Path, tmp_path: Path) -> None:
    with serve_process(quick, tmp_path / "s", "--log-json") as server:
        with server.connect() as wire:
            wire.call(CALL)
            assert wire.call(b"")[0] == 1
            assert wire.at_end()
        *lines, last = server.stop()[1].splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["event"] for event in events] == [
        "serving", "connected", "error", "closed", "stopped",
    ]  # fmt: skip
    assert events[2]["reason"] == "a call is 8 bytes, a frame of 0 came"
    assert (events[4]["signal"], events[4]["calls"], events[4]["runs"]) == ("SIGTERM", 1, 1)
    assert all(isinstance(event["time"], float) for event in events)
    assert last.startswith("sexpgpu serve: stopped by SIGTERM")


def test_a_stop_answers_the_calls_in_flight(slow: Path, tmp_path: Path) -> None:
    """One that runs, those that wait for it, and those that a client has sent ahead."""
    with serve_process(slow, tmp_path / "s", "--batch", "2") as server:
        running, waiting, ahead = server.connect(), server.connect(), server.connect()
        _run_long(server, running, 3000)
        waiting.send(struct.pack("<q", 1))
        for number in range(3):
            ahead.send(struct.pack("<q", number))
        server.process.send_signal(signal.SIGTERM)
        assert running.frame() == struct.pack("<bq", 0, 3000)
        assert waiting.frame() == struct.pack("<bq", 0, 1)
        assert [ahead.frame() for _ in range(3)] == [struct.pack("<bq", 0, i) for i in range(3)]
        assert running.at_end()
        assert waiting.at_end()
        assert ahead.at_end()
        status, errors = server.wait()
    assert status == 143
    assert "stopped by SIGTERM, 5 calls in" in errors


def test_a_client_that_goes_on_calling_does_not_keep_it(slow: Path, tmp_path: Path) -> None:
    with serve_process(slow, tmp_path / "s") as server, server.connect() as wire:
        _run_long(server, wire, 3000)
        server.process.send_signal(signal.SIGINT)
        answers = 0
        with suppress(EOFError, OSError):
            while True:
                wire.frame()
                answers += 1
                wire.send(struct.pack("<q", 1))
        assert server.wait()[0] == 130
    # How few they are is seen where turns are taken by hand.
    assert answers >= 1


def test_nobody_keeps_it_waiting(quick: Path, tmp_path: Path) -> None:
    """Half a frame, an answer that is not read, and an error whose client stays."""
    with serve_process(quick, tmp_path / "s") as server:
        half, silent, refused = server.connect(), server.connect(), server.connect()
        half.socket.sendall(struct.pack("<Q", 8) + b"1234")
        silent.socket.settimeout(0.5)
        with suppress(TimeoutError):
            while True:
                silent.send(CALL)
        refused.send(b"")
        assert refused.frame()[0] == 1
        assert server.stop()[0] == 143
        assert half.at_end()


def test_a_second_signal_ends_it_at_once(slow: Path, tmp_path: Path) -> None:
    with serve_process(slow, tmp_path / "s") as server, server.connect() as wire:
        _run_long(server, wire, 1_000_000)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not _has(server.process, "ShdPnd", signal.SIGTERM))
        assert server.process.poll() is None
        status, errors = server.stop(signal.SIGINT)
    assert status == 130
    assert errors == "sexpgpu serve: stopped by SIGINT at once\n"
    assert not (tmp_path / "s").exists()


def _has(process: subprocess.Popen[str], kind: str, number: int) -> bool:
    """Whether a signal is one of those that the process catches, or that wait for it."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(rf"{kind}:\s*([0-9a-f]+)", text)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def _seconds_of(process: subprocess.Popen[str]) -> float:
    """How long a process has computed."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _run_long(server: Process, wire: Wire, milliseconds: int) -> None:
    """Sends a call of the slow model, and waits until the server has begun to compute for it."""
    before = _seconds_of(server.process)
    wire.send(struct.pack("<q", milliseconds))
    wait_until(lambda: _seconds_of(server.process) > before + 0.05)


def test_it_can_be_stopped_while_it_loads(tmp_path: Path) -> None:
    path = write_slow(tmp_path / "m.onnx", least=1_000_000)
    process = start("serve", str(path), "--socket", str(tmp_path / "s"))
    try:
        wait_until(lambda: _has(process, "SigCgt", signal.SIGTERM))
        # Importing takes a second at most: by then ONNX Runtime computes what is constant.
        wait_until(lambda: _seconds_of(process) > 2)
        status, errors = Process(str(tmp_path / "s"), process, []).stop(signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()
    assert status == 143
    assert errors == "sexpgpu serve: stopped by SIGTERM while loading\n"
    assert not (tmp_path / "s").exists()


def test_a_terminal_that_closes_stops_nothing_under_nohup(quick: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with serve_process(quick, tmp_path / "s", keep=(signal.SIGHUP,)) as server:
            server.process.send_signal(signal.SIGHUP)
            with server.connect() as wire:
                time.sleep(0.1)
                assert wire.call(CALL) == ANSWER
            assert server.stop()[0] == 143
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_reader_of_its_messages_may_go(quick: Path, tmp_path: Path) -> None:
    with serve_process(quick, tmp_path / "s", "--log-json") as server:
        assert server.process.stderr is not None
        assert server.process.stdout is not None
        server.process.stderr.close()
        server.process.stdout.close()
        with server.connect() as wire:
            assert wire.call(b"")[0] == 1
        with server.connect() as wire:
            assert wire.call(CALL) == ANSWER
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 143
        server.process.stderr = server.process.stdout = None
    assert not (tmp_path / "s").exists()


def test_a_server_that_is_killed_is_no_obstacle_to_the_next(quick: Path, tmp_path: Path) -> None:
    with serve_process(quick, tmp_path / "s") as server, server.connect() as wire:
        os.kill(server.process.pid, signal.SIGKILL)
        assert wire.at_end()
        server.process.wait()
    assert (tmp_path / "s").is_socket()
    with serve_process(quick, tmp_path / "s") as server, server.connect() as wire:
        assert wire.call(CALL) == ANSWER
