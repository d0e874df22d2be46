"""Calls of the operations that give the same elements another place."""

from __future__ import annotations

from collections.abc import Iterator

from sexpgpu.export.graph.types import Batch, DType
from support.samples import B, Sample, call, numbers

NUMBERS = [dtype for dtype in DType if dtype is not DType.BOOL]


def samples() -> Iterator[Sample]:
    x = numbers(B, 4, 6)
    for shape in ((B, 4, 2, 3), (B, 24), (-1, 6), (Batch(4), 6), (4 * 6, B), (B, 1, 4, 6)):
        yield call("reshape", x, shape=shape)
    yield call("reshape", numbers(), shape=(1, 1))
    yield call("reshape", numbers(Batch(4), 6), shape=(B, 4, 6))
    yield call("reshape", numbers(B, 0, 6), shape=(B, 3, 0))
    yield call("transpose", x)
    yield call("transpose", x, axes=(0, -1))
    yield call("permute", x, axes=(2, 0, 1))
    yield call("permute", numbers(), axes=())
    yield call("broadcast-to", numbers(B, 1, 6), shape=(B, 4, 6))
    yield call("broadcast-to", numbers(4, 1), shape=(B, 4, 3))
    yield call("broadcast-to", numbers(), shape=(2, 0))
    yield call("broadcast-to", numbers(1, 3), shape=(Batch(2), 3))
    yield call("squeeze", numbers(1, B, 1, 4), axis=(0, -2))
    yield call("squeeze", numbers(B, 4), axis=())
    yield call("unsqueeze", numbers(B, 4), axis=(0, -1))
    yield call("unsqueeze", numbers(B, 4), axis=(1,))
    yield call("unsqueeze", numbers(B, 4), axis=())

    yield call("concat", numbers(B, 2, 3), numbers(B, 2, 1), numbers(B, 2, 0))
    yield call("concat", numbers(B, 2), numbers(Batch(2), 2), axis=0)
    yield call("concat", numbers(4, B, 3), axis=0)
    yield call("stack", numbers(B, 3), numbers(B, 3))
    yield call("stack", numbers(B, 3), numbers(B, 3), numbers(B, 3), axis=1)
    yield call("stack", numbers(), numbers(), axis=0)
    yield call("split", x, parts=(3,))
    yield call("split", x, parts=(1, 0, 3), axis=1)
    yield call("split", numbers(Batch(2), 4), parts=(2,), axis=0)
    yield call("split", x, parts=(1,), axis=0)

    for bounds in (
        (1, None, 1),
        (None, -1, 2),
        (None, None, -1),
        (5, 1, -3),
        (3, 2, 1),
        (-99, 99, 1),
    ):
        start, end, step = bounds
        yield call("slice", x, axis=2, from_=start, to=end, step=step)
    yield call("slice", numbers(4, B), to=3)
    yield call("flip", x)
    yield call("flip", x, axis=(0, 1))
    yield call("flip", x, axis=())
    yield call("roll", x, shift=(2,))
    yield call("roll", x, shift=(-7,), axis=(1,))
    yield call("roll", x, shift=(12,))
    yield call("roll", x, shift=(1, -1), axis=(1, -1))
    yield call("shift", x, count=1, axis=1)
    yield call("shift", x, count=-2, value=1.0)
    yield call("shift", x, count=12)
    yield call("pad", x, before=(0, 1, 2), after=(0, 0, 1))
    yield call("pad", x, before=(0, 1, 0), value=1.0)
    yield call("pad", x, after=(0, 2, 1), mode="edge")
    yield call("pad", x, before=(0, 2, 1), after=(0, 3, 0), mode="reflect")
    yield call("pad", numbers(B, 4))
    # Infinities are padding for a maximum.
    yield call("pad", x, before=(0, 0, 1), value=float("-inf"), dtypes=NUMBERS[:3])
    yield call("tile", x, repeats=(1, 2, 1))
    yield call("tile", x, repeats=(2, 1, 3))
    yield call("tile", x, repeats=(1, 1, 1))
    yield call("tile", numbers(B, 3), repeats=(1, 0))
