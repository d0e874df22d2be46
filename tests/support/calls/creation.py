"""Calls of the operations that make tensors out of nothing, and of those that draw numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sexpgpu.export.graph.types import Array, Batch, Dimension, DType
from support.samples import B, Sample, call, edges, numbers, own_dtype

FLOATS = (DType.F32, DType.F64, DType.BF16)
NUMBERS = tuple(dtype for dtype in DType if dtype is not DType.BOOL)


def samples() -> Iterator[Sample]:
    yield call("constant", value=_constant, dtypes=list(DType))
    yield call("constant", value=_nothing, dtypes=list(DType))
    for shape in ((2, 3), (B, 2), (), (Batch(3), 0), (2, B)):
        yield call("full", shape=shape, value=1.0, dtype=own_dtype, dtypes=list(DType))
    yield call("full", shape=(B,), value=-2.5, dtype=own_dtype, dtypes=FLOATS)
    for length in (5, 0, B):
        yield call("iota", length=(length,), dtype=own_dtype, dtypes=NUMBERS)
    yield call("iota", length=(B,), start=5.0, step=-2.0, dtype=own_dtype, dtypes=NUMBERS)
    yield call("iota", length=(7,), start=0.3, step=0.1, dtype=own_dtype, dtypes=FLOATS)
    for offset in (0, 1, -2, 9):
        yield call("eye", rows=4, offset=offset, dtype=own_dtype, dtypes=list(DType))
    yield call("eye", rows=3, columns=5, dtype=own_dtype, dtypes=list(DType))
    yield call("eye", rows=0, columns=2, dtype=own_dtype, dtypes=list(DType))
    for name in ("random-normal", "random-uniform"):
        yield call(name, shape=(2, 3), dtype=own_dtype, dtypes=FLOATS)
        yield call(name, shape=(B, 3), dtype=own_dtype, dtypes=FLOATS, seed=7)
    yield call("random-normal", shape=(4,), mean=1.0, deviation=2.0)
    yield call("random-uniform", shape=(4,), low=-1.0, high=2.0)
    yield call("dropout", numbers(B, 4, 3), rate=0.5)
    yield call("dropout", numbers(3), rate=0.0, seed=3)


def _constant(dtype: DType, batch: Dimension) -> Array:
    return edges(2, 3).draw(np.random.default_rng(0), dtype, 1)


def _nothing(dtype: DType, batch: Dimension) -> Array:
    return np.zeros((0, 2), dtype.numpy)
