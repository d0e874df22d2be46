"""Scalars as a device gives them: they are there some time after they are asked for."""

from __future__ import annotations


class Later:
    """A scalar that is not there until `arrive`, and that counts who waited for it."""

    def __init__(self, value: float, fault: Exception | None = None) -> None:
        self.waits = 0
        self._value = value
        self._fault = fault
        self._there = False

    def arrive(self) -> None:
        self._there = True

    def is_ready(self) -> bool:
        return self._there

    def item(self) -> float:
        if not self._there:
            self.waits += 1
            self._there = True
        if self._fault is not None:
            raise self._fault
        return self._value


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
