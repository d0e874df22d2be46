"""What is said of a run on its way."""

from __future__ import annotations

from sexpgpu.tools.train.course import Course
from support.later import Clock


def test_a_run_from_its_start_to_its_end() -> None:
    clock = Clock()
    course = Course(total=100, start=0, unit="tokens", per_step=512, title="gpt\x1b", clock=clock)
    assert course.opening == "gpt?: 100 steps of 512 tokens"
    assert (course.speed, course.left) == ("", "")
    for step in range(1, 21):
        clock.now += 1
        course.reach(step)
    assert (course.speed, course.left) == ("512 tok/s", "1m 20s left")
    clock.now += 80
    course.reach(100)
    assert course.left == "took 1m 40s"


def test_a_resumed_run_says_so() -> None:
    course = Course(total=100, start=40, unit="records", per_step=8, title="net")
    assert course.opening == "net: 100 steps of 8 records, resumed after step 40"
    assert course.at == 40
