"""Progress as lines: few, in a form that programs can read, and never in a run's way."""

from __future__ import annotations

import io

import pytest

from sexpgpu.tools.train.course import Course
from sexpgpu.tools.train.lines import LineProgress
from support.later import Clock, Later


def opened(
    clock: Clock, total: int = 1000, stream: io.TextIOBase | None = None
) -> tuple[io.StringIO, LineProgress]:
    course = Course(total=total, start=0, unit="records", per_step=8, title="net", clock=clock)
    text = io.StringIO()
    return text, LineProgress(stream or text, course)  # type: ignore[arg-type] # a text stream


def test_a_run_as_it_is_read() -> None:
    clock = Clock()
    stream, progress = opened(clock, total=4)
    with progress:
        for step in range(1, 5):
            clock.now += 3
            progress.step(step, {"loss": 3 / step, "learning_rate": 3e-4})
            if step == 2:
                clock.now += 1
                progress.evaluated(2, {"loss": 1.25, "accuracy": 0.5})
                progress.saved(2, "runs/a/step-00000002")
        progress.note("done\nand \x1b[31mwell")
    assert stream.getvalue().splitlines() == [
        "net: 4 steps of 8 records",
        "step 1/4: loss 3.000, lr 3e-4",
        "evaluation at step 2: loss 1.250, accuracy 0.5000",
        "saved step 2: runs/a/step-00000002",
        "step 3/4: loss 1.000, lr 3e-4, 2.67 records/s, 4s left",
        "step 4/4: loss 0.7500, lr 3e-4, 2.67 records/s, took 13s",
        "done",
        "and ?[31mwell",
    ]


def test_the_longer_a_run_is_the_rarer_are_its_lines() -> None:
    clock = Clock()
    stream, progress = opened(clock, total=100_000)
    shown = []
    for step in range(1, 36_001):
        clock.now += 0.1
        progress.step(step, {"loss": 1.0})
        shown.append(stream.getvalue().count("step "))
    # A line in five seconds at first, one in a minute later.
    assert shown[499] == 10
    assert 60 < shown[-1] < 120
    assert shown[-1] - shown[-6001] == pytest.approx(10, abs=1)


def test_a_step_is_shown_when_its_numbers_are_there() -> None:
    clock = Clock()
    stream, progress = opened(clock)
    scalars = [Later(float(step)) for step in range(1, 6)]
    for step, scalar in enumerate(scalars, 1):
        clock.now += 10
        if step == 4:
            scalars[1].arrive()
        progress.step(step, {"loss": scalar})
    # The first is waited for, as the last would be.
    assert [scalar.waits for scalar in scalars] == [1, 0, 0, 0, 0]
    lines = [line.partition(",")[0] for line in stream.getvalue().splitlines()[1:]]
    assert lines == ["step 1/1000: loss 1.000", "step 2/1000: loss 2.000"]
    scalars[2].arrive()
    progress.close()
    assert stream.getvalue().splitlines()[-1].startswith("step 3/1000: loss 3.000")
    progress.close()
    assert len(stream.getvalue().splitlines()) == 4


def test_the_end_of_a_run_whose_device_failed_is_quiet() -> None:
    clock = Clock()
    _, progress = opened(clock)
    failed = Later(1.0, fault=RuntimeError("the device is gone"))
    progress.step(1, {"loss": 1.0})
    failed.arrive()
    progress.step(2, {"loss": failed})
    progress.close()


def test_a_run_goes_on_when_nobody_reads() -> None:
    class Broken(io.StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            raise BrokenPipeError

    stream = Broken()
    _, progress = opened(Clock(), stream=stream)
    progress.step(1, {"loss": 1.0})
    progress.saved(1, "x")
    progress.close()
    assert stream.writes == 1
    _, progress = opened(Clock(), stream=(closed := io.StringIO()))
    closed.close()
    progress.note("x")


def test_what_the_stream_cannot_write_is_escaped() -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    _, progress = opened(Clock(), stream=stream)
    progress.note("é")
    assert buffer.getvalue().splitlines()[-1] == b"\\xe9"
