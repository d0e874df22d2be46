"""The pace of a run, by a clock that is set by hand."""

from __future__ import annotations

import pytest

from sexpgpu.tools.train.pace import Pace
from support.later import Clock


def test_the_first_step_which_compiles_does_not_count() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 60
    pace.reach(1)
    assert pace.steps_per_second(1) is None
    assert pace.seconds_for(9, 1) is None
    clock.now += 0.5
    pace.reach(2)
    assert pace.steps_per_second(2) == 2.0
    assert pace.seconds_for(8, 2) == 4.0


def test_the_last_half_minute_counts() -> None:
    clock = Clock()
    pace = Pace(clock)
    step = 0
    for rate, seconds in ((10, 100), (40, 60)):
        for _ in range(rate * seconds):
            clock.now += 1 / rate
            step += 1
            pace.reach(step)
    assert pace.steps_per_second(step) == pytest.approx(40, rel=0.01)
    assert len(pace._samples) < 130


def test_of_long_steps_the_last_few_count() -> None:
    clock = Clock()
    pace = Pace(clock)
    for step in range(1, 30):
        clock.now += 50
        pace.reach(step)
    assert pace.steps_per_second(29) == pytest.approx(1 / 50)


def test_pauses_are_no_steps_but_take_time() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.pause()
    for step in range(1, 102):
        clock.now += 0.1
        pace.reach(step)
        if step % 10 == 0:
            clock.now += 1
            pace.pause()
    assert pace.steps_per_second(101) == pytest.approx(10)
    # A hundred steps take ten seconds, and ten pauses as long again.
    assert pace.seconds_for(100, 101) == pytest.approx(20)


def test_a_step_that_something_else_went_before_does_not_count() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.rest()
    for step in range(1, 101):
        clock.now += 0.1 if step % 10 else 7
        pace.reach(step)
        if step % 10 == 9:
            pace.rest()
    assert pace.steps_per_second(100) == pytest.approx(10)
