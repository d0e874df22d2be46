"""What is checked of calls before they run: values that a dtype or an index may not have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.serve.engine import Buffers
from sexpgpu.serve.hosted import Hosted, Limits

#: What is wrong with a record; None where nothing is.
Check = Callable[[Array], "str | None"]


class CallChecks:
    """Checks the records of a batch, all at once where all are good."""

    def __init__(self, hosted: Hosted) -> None:
        # Input, the words that are certainly good (negative ones are large), and what blames one.
        self._checks: list[tuple[int, int, Check]] = []
        for index, spec in enumerate(hosted.inputs):
            if not spec.nbytes:
                continue
            if spec.dtype is DType.BOOL:
                self._checks.append((index, 2, _boolean_check(spec.name)))
            elif spec.name in hosted.limits:
                limits = hosted.limits[spec.name]
                self._checks.append((index, limits.high, _index_check(spec.name, limits)))

    def bad_calls(self, buffers: Buffers, count: int) -> dict[int, str]:
        """The rows among the first `count` that must not run, and why."""
        bad: dict[int, str] = {}
        for index, end, blame in self._checks:
            rows = buffers.inputs[index]
            words = rows.words(count)
            # In NumPy this is the quickest way to the largest.
            if words.item(words.argmax()) < end:
                continue
            for row, record in enumerate(rows.records(count)):
                message = blame(record)
                if message is not None:
                    bad.setdefault(row, message)
        return bad


def _boolean_check(name: str) -> Check:
    def check(record: Array) -> str | None:
        largest = int(record.view(np.uint8).max())
        return None if largest <= 1 else f"`{name}`: a bool is 0 or 1, {largest} came"

    return check


def _index_check(name: str, limits: Limits) -> Check:
    high = np.array(limits.each or limits.high, np.int64)
    low = -high if limits.each else np.array(limits.low)

    def check(record: Array) -> str | None:
        bad = ((record < low) | (record >= high)) & (high > 0)
        if not bad.any():
            return None
        first = int(bad.argmax())
        least, end = (int(np.broadcast_to(bound, record.shape)[first]) for bound in (low, high))
        return f"`{name}`: {record[first]} is outside {max(0, least)} to {end - 1}"

    return check
