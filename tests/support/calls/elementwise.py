"""Calls of the operations that compute element by element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sexpgpu.export.graph.types import Batch, DType
from support.samples import B, Sample, booleans, call, edges, numbers

UNARY = """
sigmoid softplus relu leaky-relu elu silu gelu hard-swish neg abs sign is-nan is-finite floor ceil
round exp log log1p expm1 sqrt rsqrt sin cos tan tanh erf asin acos atan sinh cosh
asinh acosh atanh erfc lgamma logical-not bitwise-not stop-gradient
""".split()
BINARY = """
+ - * / mod floor-divide pow atan2 minimum maximum = != < <= > >= logical-and logical-or
logical-xor bitwise-and bitwise-or bitwise-xor shift-left shift-right
""".split()


def samples() -> Iterator[Sample]:
    for name in UNARY:
        yield call(name, numbers(B, 4, 3))
        yield call(name, numbers())
        yield call(name, edges(5, B, 3))
    for name in BINARY:
        yield call(name, numbers(B, 4, 3), edges(B, 4, 3))
        yield call(name, numbers(4, B, 1), numbers(3))
        yield call(name, numbers(), edges(2, 1, 3))
        yield call(name, numbers(1, 4), numbers(Batch(2), 1))
    yield call("leaky-relu", numbers(B, 3), slope=-0.5)
    yield call("elu", numbers(B, 3), alpha=0.25)
    yield call("gelu", edges(B, 5), tanh=True)
    for low, high in ((None, None), (-1.0, None), (None, 1.0), (-1.0, 3.0), (-np.inf, np.inf)):
        yield call("clip", edges(4, B), low=low, high=high)
    yield call("where", booleans(B, 1, 3), numbers(4, 1), edges(B, 4, 3))
    yield call("where", booleans(), numbers(B), numbers())
    yield call("where", booleans(3), numbers(B, 3), numbers(1, 1))
    for dtype in DType:
        yield call("cast", edges(B, 7), dtype=dtype)
        yield call("cast", numbers(), dtype=dtype)
