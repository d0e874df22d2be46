"""Calls of the operations that reduce axes, run along them or normalise them."""

from __future__ import annotations

from collections.abc import Iterator

from sexpgpu.export.graph.types import Batch
from support.samples import B, Sample, call, edges, numbers, positive, ties

REDUCTIONS = "sum mean prod max min any all variance logsumexp norm".split()


def samples() -> Iterator[Sample]:
    for name in REDUCTIONS:
        x = ties(B, 4, 3) if name == "prod" else numbers(B, 4, 3)
        yield call(name, x)
        yield call(name, x, axis=(-1,))
        yield call(name, x, axis=(1, 2), keep=True)
        yield call(name, x, axis=(1,))
        yield call(name, x, axis=(), keep=True)
        yield call(name, numbers(3, Batch(2), 2), axis=(0, -1))
        yield call(name, numbers(3, B), axis=(1,), keep=True)
    for name in ("max", "min", "sum"):
        yield call(name, edges(B, 5), axis=(1,))
    for name in ("sum", "prod", "any", "all", "logsumexp", "norm"):
        yield call(name, numbers(B, 0, 2), axis=(1,))
    yield call("variance", numbers(B, 5), axis=(1,), correction=1)
    for order in (1.0, float("inf")):
        yield call("norm", numbers(B, 5), axis=(-1,), order=order)
        yield call("norm", numbers(B, 4, 5), axis=(1, 2), keep=True, order=order)

    yield call("cumsum", numbers(B, 4, 3))
    yield call("cumsum", numbers(B, 4, 3), axis=1, exclusive=True)
    yield call("cumsum", numbers(4, B), axis=0, reverse=True)
    yield call("cumsum", numbers(B, 4), reverse=True, exclusive=True)

    for name in ("softmax", "log-softmax"):
        yield call(name, numbers(B, 4, 5))
        yield call(name, numbers(B, 4, 5), axis=1)
        yield call(name, numbers(5, B), axis=0)
        yield call(name, edges(B, 3), axis=-1)
    x, row, block = numbers(B, 4, 5), numbers(5), numbers(4, 5)
    for name in ("layer-normalize", "rms-normalize"):
        yield call(name, x)
        yield call(name, x, row, given=("scale",))
        yield call(name, x, block, axis=1, epsilon=0.1, given=("scale",))
        yield call(name, numbers(2, B, 5), epsilon=1e-3)
    yield call("layer-normalize", x, row, row, given=("scale", "bias"))
    yield call("layer-normalize", x, row, given=("bias",))

    channels = (numbers(4), numbers(4), numbers(4), positive(4))
    for shape in ((B, 4), (B, 4, 5), (B, 4, 3, 7), (B, 4, 2, 3, 1)):
        yield call("batch-normalize", numbers(*shape), *channels)
    yield call("batch-normalize", edges(B, 4, 5), *channels, epsilon=0.1)
    yield call("batch-normalize", numbers(3, 4, B), *channels)
