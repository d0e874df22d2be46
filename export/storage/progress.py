"""How far a long transfer is, on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Advance: TypeAlias = Callable[[int], object]
"""Told of the bytes that went by since it was last told."""

_STEPS = 10


@contextmanager
def progress(label: str, total: int) -> Iterator[Advance]:
    """Show `label` and how much of `total` bytes has gone by, as long as the context lasts.

    A bar where rich is installed, else a line for every tenth; nothing where stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
    except ImportError:
        yield _Lines(label, total).advance
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.update(task, advance=count)


class _Lines:
    """A line each time another tenth is done."""

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = max(total, 1)
        self._done = 0

    def advance(self, count: int) -> None:
        before = self._done * _STEPS // self._total
        self._done += count
        if (now := self._done * _STEPS // self._total) > before:
            percent = now * 100 // _STEPS
            print(f"{self._label}: {percent} % of {self._total:,} bytes", file=sys.stderr)
