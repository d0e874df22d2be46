"""Scalars that a device may still be computing, and when they can be read."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeAlias

from sexpgpu.export.language.training import LEARNING_RATE, LOSS

Number: TypeAlias = int | float

_KEPT = 1024
"""Steps that are remembered: more than a device is ever behind."""


FIRST = (LOSS, LEARNING_RATE)
"""What comes before the metrics, wherever values are shown or written."""


def is_ready(values: Mapping[str, Any]) -> bool:
    """Whether all can be read without waiting."""
    return all(
        value.is_ready()
        for value in values.values()
        if getattr(value, "is_ready", None) is not None
    )


def read(values: Mapping[str, Any]) -> dict[str, Number]:
    """The values as plain numbers, the loss first; waits for the device that computes them."""
    names = dict.fromkeys((*(name for name in FIRST if name in values), *values))
    return {name: _number(values[name]) for name in names}


def _number(value: Any) -> Number:
    # `item` of a JAX scalar takes a quarter of the time that `float` does.
    plain = value.item() if hasattr(value, "item") else value
    return int(plain) if isinstance(plain, int) else float(plain)


class Readings:
    """The values of the last steps, read as far as they are there.

    One thread may add while another takes.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[int, Mapping[str, Any]]] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """Remember the values of a step, which comes after all before it."""
        with self._lock:
            self._steps.append((step, values))

    def take(self, count: int) -> list[tuple[int, dict[str, Number]]]:
        """The newest `count` steps at most whose values are there, in their order.

        They and those before them are not taken again.
        """
        with self._lock:
            steps = list(self._steps)
        # A device computes one step after another: those that are there come first.
        there = bisect_left(steps, True, key=lambda each: not is_ready(each[1]))
        taken = [(step, read(values)) for step, values in steps[max(0, there - count) : there]]
        if taken:
            with self._lock:
                while self._steps and self._steps[0][0] <= taken[-1][0]:
                    self._steps.popleft()
        return taken
