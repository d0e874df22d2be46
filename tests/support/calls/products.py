"""Calls of matmul, einsum, attention and rotary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sexpgpu.export.graph.types import Batch, DType
from support.samples import B, Sample, Tensor, booleans, call, numbers, whole

EQUATIONS: tuple[tuple[str, tuple[Tensor, ...]], ...] = (
    ("bij,jk->bik", (numbers(B, 4, 3), numbers(3, 5))),
    ("bhqd,bhkd->bhqk", (numbers(B, 2, 4, 3), numbers(B, 2, 5, 3))),
    ("bqd,bkd,k->bq", (numbers(B, 4, 3), numbers(B, 5, 3), numbers(5))),
    ("...i,i", (numbers(B, 4, 3), numbers(3))),
    ("bii->bi", (numbers(B, 3, 3),)),
    ("ij->", (numbers(B, 3),)),
    ("bi,bj->bij", (numbers(B, 3), numbers(B, 2))),
    ("bij,bij->bij", (numbers(B, 4, 3), numbers(B, 4, 3))),
)


def samples() -> Iterator[Sample]:
    for precision in ("f32", "bf16"):
        yield call("matmul", numbers(B, 4, 3), numbers(3, 5), precision=precision)
        yield call("matmul", numbers(B, 2, 4, 3), numbers(B, 1, 3, 5), precision=precision)
        yield call("einsum", *EQUATIONS[0][1], equation=EQUATIONS[0][0], precision=precision)
    yield call("matmul", numbers(3), numbers(3))
    yield call("matmul", numbers(B, 3), numbers(3))
    yield call("matmul", numbers(3), numbers(B, 3, 2))
    yield call("matmul", numbers(4, 3), numbers(B, 3, 2))
    yield call("matmul", numbers(Batch(2), 3), numbers(3, 4))
    yield call("matmul", numbers(B, 4, 0), numbers(0, 2))
    yield call("matmul", numbers(3, B), numbers(B, 2))
    for equation, tensors in EQUATIONS[1:]:
        yield call("einsum", *tensors, equation=equation)
    yield from _attention()
    yield from _rotary()


def _attention() -> Iterator[Sample]:
    q, k, v = numbers(B, 4, 5, 4), numbers(B, 2, 5, 4), numbers(B, 2, 5, 3)
    variants: list[dict[str, Any]] = [
        {},
        {"causal": True},
        {"scale": 0.3, "softcap": 2.0},
        {"window": 2, "offset": 1},
        {"causal": True, "window": 3, "offset": -1},
        {"precision": "bf16", "causal": True},
    ]
    for variant in variants:
        yield call("attention", q, k, v, **variant)
    rank3 = numbers(B, 5, 4), numbers(B, 6, 4), numbers(B, 6, 2)
    for variant in variants[:5]:
        yield call("attention", *rank3, **variant)
    shared = numbers(B, 2, 5, 4), k, v
    yield call("attention", *shared, booleans(B, 1, 1, 5), given=("mask",))
    yield call("attention", *shared, booleans(5, 5), causal=True, given=("mask",))
    yield call("attention", *shared, numbers(2, 5, 5), given=("bias",))
    yield call("attention", *shared, numbers(B, 2, 5, 5), causal=True, given=("bias",))
    for dtype in (DType.I32, DType.I64):
        places = whole(-1, 6, B, 5, dtype=dtype)
        yield call("attention", q, k, v, places, causal=True, given=("positions",))
        places = whole(-1, 6, 5, dtype=dtype)
        yield call("attention", *rank3, places, window=2, given=("positions",))
    everything = (booleans(B, 1, 5, 5), numbers(5), whole(0, 5, B, 1, 1, 5))
    yield call("attention", q, k, v, *everything, causal=True, given=("mask", "bias", "positions"))
    # As many queries as keys are not: the last stands at the last key.
    yield call("attention", numbers(B, 2, 3, 4), k, v, causal=True)


def _rotary() -> Iterator[Sample]:
    x = numbers(B, 2, 5, 6)
    yarn = {"scaling": "yarn", "factor": 4.0, "base": 10.0, "original": 64, "beta-fast": 8.0}
    llama = {"scaling": "llama3", "factor": 8.0, "low": 1.5, "high": 3.0, "original": 16}
    for variant in (
        {},
        {"interleaved": True},
        {"dimensions": 4, "base": 100.0},
        {"scaling": "linear", "factor": 4.0},
        llama,
        yarn,
        {"scaling": "yarn", "beta-slow": 0.5, "truncate": False, "attention-factor": 0.7},
        {"length": 7},
    ):
        yield call("rotary", x, **variant)
        yield call("rotary", numbers(5, 6), **variant)
    for dtype in (DType.I32, DType.I64):
        for variant in ({}, {"length": 6}, {"interleaved": True, **llama}, yarn):
            places = whole(0, 9, B, 5, dtype=dtype)
            yield call("rotary", x, places, given=("positions",), **variant)
            yield call("rotary", x, whole(0, 9, 5, dtype=dtype), given=("positions",), **variant)
    yield call("rotary", x, whole(0, 9, B, 1, 5), given=("positions",))
