"""Steps that were handed to the device: each is looked at when it is done, none is waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from sexpgpu.tools.train.engine import Told

#: So many steps may be under way: each keeps its records.
_AHEAD = 8


class Taken(NamedTuple):
    """A step that was handed to the device: its number from 0, its records and what it tells."""

    number: int
    records: Mapping[str, jax.Array]
    told: Told


class Watch:
    """The steps whose outcome is not known yet."""

    def __init__(self) -> None:
        self._waiting: deque[Taken] = deque()

    def add(self, taken: Taken) -> Taken | None:
        """Looks at what is done, and waits where too many are under way; gives a broken step."""
        self._waiting.append(taken)
        while self._waiting:
            first = self._waiting[0]
            broken: Any = first.told.broken
            if len(self._waiting) <= _AHEAD and not broken.is_ready():
                return None
            self._waiting.popleft()
            if bool(broken):
                return first
        return None

    def finish(self) -> Taken | None:
        """Waits for all; gives the first broken step."""
        while self._waiting:
            first = self._waiting.popleft()
            if bool(first.told.broken):
                self._waiting.clear()
                return first
        return None
