"""Steps under way: none is waited for before it must be, and the first broken one is given."""

from __future__ import annotations

from typing import Any

from sexpgpu.tools.train.engine import Told
from sexpgpu.tools.train.watch import Taken, Watch

AHEAD = 8


class Flag:
    """Whether a step is broken, as a device tells it: some time later."""

    def __init__(self, broken: bool = False, ready: bool = False) -> None:
        self.broken = broken
        self.ready = ready
        self.waits = 0

    def is_ready(self) -> bool:
        return self.ready

    def __bool__(self) -> bool:
        self.waits += not self.ready
        self.ready = True
        return self.broken


def step(number: int, flag: Any) -> Taken:
    return Taken(number, {}, Told({}, {}, flag))


def number_of(taken: Taken | None) -> int | None:
    return None if taken is None else taken.number


def test_no_step_is_waited_for_while_few_are_under_way() -> None:
    watch, flags = Watch(), [Flag() for _ in range(AHEAD + 3)]
    assert all(watch.add(step(number, flag)) is None for number, flag in enumerate(flags))
    assert [flag.waits for flag in flags] == [1] * 3 + [0] * AHEAD


def test_a_broken_step_is_seen_when_it_is_there() -> None:
    watch = Watch()
    first, second = Flag(ready=True), Flag(broken=True)
    assert watch.add(step(0, first)) is None
    assert watch.add(step(1, second)) is None
    second.ready = True
    # Those after it are broken as well, for the state says so.
    assert number_of(watch.add(step(2, Flag(broken=True)))) == 1
    assert second.waits == 0


def test_at_the_end_all_are_waited_for() -> None:
    watch = Watch()
    flags = [Flag(), Flag(), Flag(broken=True), Flag(broken=True)]
    for number, flag in enumerate(flags):
        assert watch.add(step(number, flag)) is None
    assert number_of(watch.finish()) == 2
    assert flags[3].waits == 0
    assert watch.finish() is None


def test_all_is_well() -> None:
    watch = Watch()
    flags = [Flag() for _ in range(3)]
    for number, flag in enumerate(flags):
        watch.add(step(number, flag))
    assert watch.finish() is None
    assert [flag.waits for flag in flags] == [1, 1, 1]
