"""What is checked of calls before they run: values that a dtype or an index may not have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.serve.engine import Buffers
from sexpgpu.serve.hosted import Hosted, Limits

#: From a buffer's first records, which of them are bad.
Check = Callable[[Array], "str | None"]


class CallChecks:
    """Checks the records of a batch, all at once where all are good."""

    def __init__(self, hosted: Hosted) -> None:
        self._checks: list[tuple[int, Check, Check]] = []
        for index, spec in enumerate(hosted.inputs):
            if not spec.nbytes:
                continue
            if spec.dtype is DType.BOOL:
                check = _boolean_check(spec.name)
                self._checks.append((index, check, check))
            elif spec.name in hosted.limits:
                limits = hosted.limits[spec.name]
                self._checks.append(
                    (index, _quick_check(limits, spec.dtype), _index_check(spec.name, limits))
                )

    def bad_calls(self, buffers: Buffers, count: int) -> dict[int, str]:
        """The rows among the first `count` that must not run, and why."""
        bad: dict[int, str] = {}
        for index, quick, exact in self._checks:
            records = buffers.inputs[index].records(count)
            if quick(records) is None:
                continue
            for row in range(count):
                message = exact(records[row])
                if message is not None:
                    bad.setdefault(row, message)
        return bad


def _boolean_check(name: str) -> Check:
    def check(records: Array) -> str | None:
        values = records.view(np.uint8)
        if values.max() <= 1:
            return None
        return f"`{name}`: a bool is 0 or 1, {int(values.max())} came"

    return check


def _quick_check(limits: Limits, dtype: DType) -> Check:
    """Whether all are from 0 to the limit: one pass, negative numbers being large unsigned ones."""
    unsigned = np.uint32 if dtype is DType.I32 else np.uint64
    high = limits.high

    def check(records: Array) -> str | None:
        return None if records.view(unsigned).max() < high else "perhaps"

    return check


def _index_check(name: str, limits: Limits) -> Check:
    def check(records: Array) -> str | None:
        bad = (records < limits.low) | (records >= limits.high)
        if not bad.any():
            return None
        value = int(records[bad][0])
        return f"`{name}`: {value} is outside {max(0, limits.low)} to {limits.high - 1}"

    return check
