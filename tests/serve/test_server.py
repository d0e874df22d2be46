"""The server: bad calls, failing runs and padding, and who is harmed by them."""

from __future__ import annotations

import json
import os
import resource
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.serve.hosted import Limits
from support.serving import Live, declare, onnx_hosted, serve_process, serving, write_onnx


@pytest.fixture(scope="module")
def masked() -> Iterator[Live]:
    """A bool, an index into 5 rows that may count from the end, and an `at` that may not."""
    hosted = onnx_hosted(
        declare({"mask": ("bool", [2]), "index": ("i64", [2]), "at": ("i32", [])}),
        declare({"m": ("bool", [2]), "rows": ("f32", [2]), "p": ("i32", [])}),
        """
        m = Not (mask)
        table = Constant <value = float[5] {0.0, 10.0, 20.0, 30.0, 40.0}> ()
        rows = Gather (table, index)
        p = Neg (at)
        """,
        {"index": Limits(-5, 5), "at": Limits(0, 16)},
    )
    with serving(hosted) as live:
        yield live


def _masked(mask: bytes, index: list[int], at: int) -> bytes:
    return mask + struct.pack("<qqi", *index, at)


GOOD = _masked(b"\0\1", [4, -5], 15)
GOOD_ANSWER = b"\0\1\0" + struct.pack("<ffi", 40, 0, -15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (_masked(b"\0\7", [0, 0], 0), "`mask`: a bool is 0 or 1, 7 came"),
        (_masked(b"\xff\0", [0, 0], 0), "`mask`: a bool is 0 or 1, 255 came"),
        (_masked(b"\0\0", [0, 5], 0), "`index`: 5 is outside 0 to 4"),
        (_masked(b"\0\0", [-6, 0], 0), "`index`: -6 is outside 0 to 4"),
        (_masked(b"\0\0", [2**62, 0], 0), f"`index`: {2**62} is outside 0 to 4"),
        (_masked(b"\0\0", [0, 0], 16), "`at`: 16 is outside 0 to 15"),
        (_masked(b"\0\0", [0, 0], -1), "`at`: -1 is outside 0 to 15"),
    ],
)
def test_a_bad_value_is_an_error_and_the_connection_goes_on(
    masked: Live, call: bytes, message: str
) -> None:
    with masked.connect() as wire:
        assert wire.call(call) == b"\1" + message.encode()
        assert wire.call(GOOD) == GOOD_ANSWER


def test_bad_calls_harm_none_of_their_batch(masked: Live) -> None:
    bad = _masked(b"\0\7", [9, 9], 99)
    calls = [bad, GOOD, bad, GOOD, GOOD, bad, bad, GOOD] * 3
    wires = [masked.connect() for _ in calls]
    for wire, call in zip(wires, calls, strict=True):
        wire.send(call)
    for wire, call in zip(wires, calls, strict=True):
        answer = wire.frame()
        assert answer == GOOD_ANSWER if call is GOOD else answer[0] == 1
        wire.close()


def test_what_a_client_has_half_sent_is_not_run(masked: Live) -> None:
    """Runs are padded with other calls, never with what happens to lie in a row."""
    hosted, bad = masked.hosted, _masked(b"\0\0", [99, 99], 0)
    with serving(hosted, limit=4, sizes=[4]) as live:
        halves = [live.connect() for _ in range(4)]
        for wire in halves:
            wire.socket.sendall(struct.pack("<Q", len(bad)) + bad[:-1])
        time.sleep(0.05)
        with live.connect() as wire:
            assert wire.call(bad)[0] == 1
            assert wire.call(GOOD) == GOOD_ANSWER
        for wire in halves:
            wire.close()


def test_a_run_that_fails_blames_the_culprit_alone() -> None:
    """The bounds of this index are not known beforehand, so that the whole run fails."""
    hosted = onnx_hosted(
        declare({"i": ("i64", [])}),
        declare({"y": ("f32", [])}),
        "table = Constant <value = float[3] {0.0, 1.0, 2.0}> ()\ny = Gather (table, i)",
    )
    for sizes in ([1, 2, 3, 4], [4]):
        with serving(hosted, limit=4, sizes=sizes) as live:
            values = [0, 1, 77, 2, 1, 0, -99, 2]
            wires = [live.connect() for _ in values]
            for _ in range(5):
                for wire, value in zip(wires, values, strict=True):
                    wire.send(struct.pack("<q", value))
                for wire, value in zip(wires, values, strict=True):
                    answer = wire.frame()
                    if 0 <= value < 3:
                        assert answer == b"\0" + struct.pack("<f", value)
                    else:
                        assert answer[0] == 1
                        assert str(value) in answer[1:].decode()
            for wire in wires:
                wire.close()


def test_many_inputs_are_more_than_the_system_takes_at_a_time() -> None:
    count = 1500
    inputs = {f"x{i}": ("i32", [1]) for i in range(count)}
    outputs = {f"y{i}": ("i32", [1]) for i in range(count)}
    body = "\n".join(f"y{i} = Neg (x{i})" for i in range(count))
    hosted = onnx_hosted(declare(inputs), declare(outputs), body)
    numbers = np.arange(count, dtype=np.int32)
    with serving(hosted, limit=2) as live, live.connect() as one, live.connect() as other:
        for _ in range(2):
            one.send(numbers.tobytes())
            other.send((numbers * 2).tobytes())
            assert one.frame() == b"\0" + (-numbers).tobytes()
            assert other.frame() == b"\0" + (numbers * -2).tobytes()


def test_without_file_descriptors_clients_wait_for_one(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "m.onnx", "float[N] x", "float[N] y", "y = Neg (x)")
    call, answer = struct.pack("<f", 2), b"\0" + struct.pack("<f", -2)
    with serve_process(path, tmp_path / "s", "--log-json") as server:
        pid = server.process.pid
        used = [int(number) for number in os.listdir(f"/proc/{pid}/fd")]
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        limit = max(used) + 4
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
        taken = [server.connect() for _ in range(limit - len(used))]
        assert len(taken) >= 3
        results: list[bytes] = []
        waiting = threading.Thread(target=lambda: results.append(server.connect().call(call)))
        waiting.start()
        errors = server.process.stderr
        assert errors is not None
        assert "refused" in iter(lambda: json.loads(errors.readline())["event"], "stopped")
        before = _seconds_of(pid)
        assert [wire.call(call) for wire in taken] == [answer] * len(taken)
        time.sleep(0.5)
        assert not results
        assert _seconds_of(pid) - before < 0.3
        taken[0].close()
        waiting.join()
        assert results == [answer]
        for wire in taken:
            wire.close()
        assert server.stop()[0] == 143


def _seconds_of(pid: int) -> float:
    """How long a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_thousand_clients(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("the system allows too few files")
    path = write_onnx(tmp_path / "m.onnx", "float[N] x", "float[N] y", "y = Neg (x)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, soft), hard))
    try:
        with serve_process(path, tmp_path / "s") as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            wires = [server.connect() for _ in range(1100)]
            for _ in range(2):
                for number, wire in enumerate(wires):
                    wire.send(struct.pack("<f", number + 1))
                for number, wire in enumerate(wires):
                    assert wire.frame() == b"\0" + struct.pack("<f", -number - 1)
            for wire in wires:
                wire.close()
            assert server.stop()[1].startswith("sexpgpu serve: stopped by SIGTERM, 2200 calls in ")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
