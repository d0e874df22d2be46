"""The log of a run: whole lines, each step once, whatever happens to the run and the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.metrics import MetricsLog, read_metrics
from support.commands import environment
from support.later import Clock, Later


@pytest.fixture(params=["local", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "local":
        return Location.parse(str(tmp_path / "run"))
    return Location.parse(f"memory://metrics/{tmp_path.name}")


def written(location: Location) -> bytes:
    return (location / "metrics.jsonl").read(1 << 20)


def put(location: Location, content: bytes) -> None:
    location.make_directory()
    with (location / "metrics.jsonl").writing() as file:
        file.write(content)


def steps(location: Location) -> list[tuple[int, str]]:
    return [(record.step, record.kind) for record in read_metrics(location)]


def line(step: int, kind: str = "train", time: float = 1) -> bytes:
    return b'{"step":%d,"kind":"%s","time":%a,"loss":2.5}\n' % (step, kind.encode(), float(time))


def refusal(call: Any, *arguments: Any) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        call(*arguments)
    return caught.value


def test_a_run_is_written_and_read(location: Location) -> None:
    clock = Clock()
    with MetricsLog.open(location, 0, clock=clock) as log:
        clock.now += 1.5
        log.write(1, "train", {"loss": 2.5, "learning_rate": 0.1})
        clock.now += 0.25
        log.write(1, "evaluation", {"loss": float("nan")})
    assert written(location) == (
        b'{"step":1,"kind":"train","time":1.5,"loss":2.5,"learning_rate":0.1}\n'
        b'{"step":1,"kind":"evaluation","time":1.75,"loss":"nan"}\n'
    )
    first, second = read_metrics(location)
    assert first.values == {"loss": 2.5, "learning_rate": 0.1}
    assert (second.step, second.kind, second.time) == (1, "evaluation", 1.75)
    assert [record.step for record in read_metrics(f"{location}/metrics.jsonl")] == [1, 1]


def test_records_a_second_are_told_of_training(location: Location) -> None:
    clock = Clock()
    with MetricsLog.open(location, 0, records_per_step=32, clock=clock) as log:
        for step in range(1, 4):
            clock.now += 0.5
            log.write(step, "train", {"loss": 1.0})
        # A checkpoint is written.
        log.sync()
        clock.now += 60
        log.write(4, "train", {"loss": 1.0})
        log.write(3, "evaluation", {"loss": 1.0})
    rates = [record.values.get("records_per_second") for record in read_metrics(location)]
    assert rates == [None, 64.0, 64.0, 64.0, None]


@pytest.mark.parametrize("torn", [b"", b'{"step":5,"ki', line(5)[:-1], b"\0" * 500])
def test_a_resumed_run_has_each_step_once(location: Location, torn: bytes) -> None:
    before = [line(1), line(2), line(2, "evaluation", 7), line(3), line(4)]
    put(location, b"".join(before) + torn)
    assert [step for step, _ in steps(location)] == [1, 2, 2, 3, 4]
    with MetricsLog.open(location, 2, clock=(clock := Clock())) as log:
        assert log.seconds == 7
        # The evaluation of the step that is resumed from may be done again.
        log.write(2, "evaluation", {"loss": 2.5})
        clock.now += 1
        log.write(3, "train", {"loss": 2.5})
        log.write(3, "evaluation", {"loss": 2.5})
    kept = b"".join(before[:3])
    assert written(location) == kept + line(3, time=8) + line(3, "evaluation", 8)
    assert location.names() == ["metrics.jsonl"]


def test_a_torn_line_is_mended_where_no_step_is_dropped(location: Location) -> None:
    put(location, line(1) + line(2) + b'{"step":3')
    with MetricsLog.open(location, 2) as log:
        log.write(3, "train", {"loss": 2.5})
    assert [step for step, _ in steps(location)] == [1, 2, 3]


def test_what_a_power_cut_left_behind_the_last_step_is_dropped(location: Location) -> None:
    put(location, line(1) + line(2) + b"\0" * 100 + line(9))
    with MetricsLog.open(location, 2) as log:
        log.write(3, "train", {"loss": 2.5})
    assert [step for step, _ in steps(location)] == [1, 2, 3]


def test_a_log_that_is_none_is_refused_and_stays(location: Location) -> None:
    put(location, line(1) + b"{}\n" + line(2))
    for call in (lambda: MetricsLog.open(location, 2), lambda: read_metrics(location)):
        error = refusal(call)
        assert error.code == "E-JSON-001"
        assert str(error.place).endswith("metrics.jsonl, line 2")
    assert written(location) == line(1) + b"{}\n" + line(2)


def test_a_run_from_its_start_begins_another_log(location: Location) -> None:
    put(location, line(1) + b"what else stood there\n")
    with MetricsLog.open(location, 0) as log:
        log.write(1, "train", {"loss": 2.5})
    assert steps(location) == [(1, "train")]


def test_a_run_without_its_log_begins_another(location: Location) -> None:
    with MetricsLog.open(location, 7) as log:
        log.write(8, "train", {"loss": 2.5})
    assert steps(location) == [(8, "train")]


def test_no_step_waits_for_its_numbers(location: Location) -> None:
    clock = Clock()
    scalars = [Later(float(step)) for step in range(4)]
    with MetricsLog.open(location, 0, clock=clock) as log:
        for step, scalar in enumerate(scalars):
            if step:
                scalars[step - 1].arrive()
            clock.now += 2
            log.write(step, "train", {"loss": scalar})
        assert [scalar.waits for scalar in scalars] == [0, 0, 0, 0]
        if location.is_local:
            assert [step for step, _ in steps(location)] == [0, 1, 2]
        log.sync()
        assert scalars[3].waits == 1
        assert [record.values["loss"] for record in read_metrics(location)] == [0, 1, 2, 3]


def test_a_device_far_behind_is_waited_for(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    with MetricsLog.open(location, 0, clock=Clock()) as log:
        for step in range(512):
            log.write(step, "train", {"loss": Later(1.0)})
        assert len(steps(location)) == 512


def test_the_fault_that_ends_a_run_is_the_one_that_is_told(location: Location) -> None:
    failed = Later(1.0, fault=RuntimeError("the device is gone"))
    failed.arrive()
    with contextlib.suppress(KeyError), MetricsLog.open(location, 0, clock=Clock()) as log:
        log.write(1, "train", {"loss": 1.0})
        log.sync()
        log.write(2, "train", {"loss": failed})
        raise KeyError
    assert steps(location) == [(1, "train")]


def test_lines_of_an_interrupted_run_are_kept(location: Location) -> None:
    with contextlib.suppress(KeyboardInterrupt), MetricsLog.open(location, 0, clock=Clock()) as log:
        log.write(1, "train", {"loss": 1.0})
        log.write(2, "train", {"loss": Later(1.0)})
        raise KeyboardInterrupt
    assert steps(location) == [(1, "train")]


def test_no_log_is_said_to_be_none(location: Location) -> None:
    error = refusal(read_metrics, location)
    assert error.code == "E-FILE-001"
    assert str(error.place).endswith("/metrics.jsonl")


def test_a_location_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    error = refusal(MetricsLog.open, Location.parse(str(tmp_path)), 0)
    assert error.code == "E-FILE-001"
    (tmp_path / "file").write_bytes(b"")
    assert refusal(MetricsLog.open, Location.parse(f"{tmp_path}/file/run"), 0).code == "E-LOC-002"


def test_a_full_disk_is_an_error_and_leaves_whole_lines(tmp_path: Path) -> None:
    """A limit on the size of files stops a write halfway, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log = MetricsLog.open(Location.parse(str(tmp_path)), 0)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        log.write(1, "train", {"loss": 1.0})
        log.sync()
        log.write(2, "train", {"loss": 1.0})
        log.write(3, "train", {"loss": 1.0})
        error = refusal(log.sync)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert error.code == "E-FILE-001"
    assert os.strerror(errno.EFBIG) in error.message
    log.close()
    assert (tmp_path / "metrics.jsonl").read_bytes().count(b"\n") == 1
    assert steps(Location.parse(str(tmp_path))) == [(1, "train")]


def test_what_cannot_be_cut_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location.parse(str(tmp_path))
    put(location, line(1) + line(2))

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    error = refusal(MetricsLog.open, location, 1)
    assert error.code == "E-FILE-001"
    assert "No space left on device" in error.message
    assert location.names() == ["metrics.jsonl"]
    assert len(steps(location)) == 2


def test_a_store_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location.parse("memory://metrics/failing")
    log = MetricsLog.open(location, 0)
    log.write(1, "train", {"loss": 1.0})

    def fail(*arguments: object, **options: object) -> None:
        raise ConnectionError("the store is gone")

    with monkeypatch.context() as patch:
        patch.setattr(fsspec.get_filesystem_class("memory"), "open", fail)
        error = refusal(log.sync)
        assert error.code == "E-LOC-002"
        assert error.came == "the store is gone"
    log.close()
    assert steps(location) == [(1, "train")]


_RUN = """
import sys
from sexpgpu.export.storage.location import Location
from sexpgpu.tools.train.metrics import MetricsLog
with MetricsLog.open(Location.parse(sys.argv[1]), int(sys.argv[2]), clock=lambda: now[0]) as log:
    for step in range(int(sys.argv[2]) + 1, 10**9):
        now[0] += 1
        log.write(step, "train", {"loss": 1 / step})
        if step % 1000 == 0:
            log.sync()
            print(step, flush=True)
"""


def test_a_killed_run_leaves_whole_lines_and_goes_on(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    saved = 0
    for _ in range(3):
        run = subprocess.Popen(
            [sys.executable, "-c", "now = [0.0]" + _RUN, str(tmp_path), str(saved)],
            stdout=subprocess.PIPE,
            env=environment(),
        )
        assert run.stdout is not None
        for _ in range(3):
            saved = int(run.stdout.readline())
        run.kill()
        run.wait()
        saved = max([saved, *map(int, run.stdout.read().split())])
        run.stdout.close()
        numbers = [record.step for record in read_metrics(location)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= saved
