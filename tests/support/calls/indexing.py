"""Calls of the operations that read or write by indices, and of those that put into order."""

from __future__ import annotations

from collections.abc import Iterator

from sexpgpu.export.graph.types import Batch, DType
from support.samples import B, Sample, call, edges, numbers, ties, whole

I32, I64 = DType.I32, DType.I64

SCATTERS = ("scatter-add", "scatter-max", "scatter-min", "scatter-set")


def samples() -> Iterator[Sample]:
    yield from _gathers()
    yield from _order()
    for dtype in DType:
        yield call("one-hot", whole(0, 4, B, 3, dtype=None), depth=4, dtype=dtype)
    indices = whole(-5, 6, B, 3, dtype=None)
    yield call("one-hot", indices, depth=4)
    yield call("one-hot", indices, depth=5, axis=0)
    yield call("one-hot", indices, depth=0, axis=1)
    yield call("one-hot", whole(0, 4, dtype=None), depth=4)
    for targets in (I32, I64):
        yield call("cross-entropy", numbers(B, 4, 5), whole(-1, 6, B, 4, dtype=targets))
    yield call("cross-entropy", numbers(B, 5), whole(0, 5, B), ignore=2, smoothing=0.2)
    yield call("cross-entropy", numbers(4, B, 5), whole(-2, 5, 4, B), ignore=-2)
    yield call("cross-entropy", numbers(5), whole(0, 5), smoothing=1.0)


def _gathers() -> Iterator[Sample]:
    for dtype in (I32, I64):
        yield call("take", numbers(6, 3), whole(-6, 6, B, 4, dtype=dtype))
        yield call("take", numbers(B, 4, 6), whole(-6, 6, 5, dtype=dtype), axis=2)
        yield call("take-along", numbers(B, 4, 6), whole(-6, 6, B, 4, 2, dtype=dtype))
        yield call("take-along", numbers(4, B, 3), whole(-4, 4, 7, B, 3, dtype=dtype), axis=0)
        yield call("gather-nd", numbers(4, 3, 2), whole(-3, 3, B, 5, 2, dtype=dtype))
        yield call("gather-nd", numbers(B, 4, 3), whole(-3, 3, B, 5, 1, dtype=dtype), batch_dims=1)
        for name in SCATTERS:
            yield call(
                name,
                numbers(B, 5, 3),
                whole(-3, 3, B, 5, 4, 1, dtype=dtype),
                numbers(B, 5, 4),
                batch_dims=2,
            )
            yield call(
                name,
                numbers(B, 4, 3),
                whole(-3, 3, B, 6, 2, dtype=dtype),
                numbers(B, 6),
                batch_dims=1,
            )
    yield call("take", numbers(B, 4), whole(0, 4), axis=1)
    yield call("take", numbers(4, Batch(2)), whole(-4, 4, 2, 2), axis=-2)
    yield call("gather-nd", numbers(B, 4, 3), whole(0, 3, B, 4, 2, 1), batch_dims=2)
    for name in SCATTERS:
        yield call(name, numbers(4, 3), whole(-4, 4, 5, 1), numbers(5, 3))


def _order() -> Iterator[Sample]:
    for name in ("argmax", "argmin"):
        yield call(name, ties(B, 4, 3))
        yield call(name, ties(B, 4, 3), axis=1, keep=True)
        yield call(name, edges(5, B), axis=0)
    for name in ("sort", "argsort"):
        yield call(name, ties(B, 4, 5))
        yield call(name, ties(B, 4, 5), axis=1, descending=True)
        yield call(name, edges(6, B), axis=0)
        yield call(name, edges(B, 7), descending=True)
    yield call("top-k", ties(B, 4, 5), k=2)
    yield call("top-k", edges(B, 5, 3), k=5, axis=1)
    yield call("top-k", ties(B, 4), k=0)
