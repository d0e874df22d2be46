"""Calls of the operations that slide a window over spatial axes, and of resize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sexpgpu.export.graph.types import DType
from support.samples import B, Sample, call, edges, numbers

FLOATS = (DType.F32, DType.F64, DType.BF16)


def samples() -> Iterator[Sample]:
    yield from _convolutions()
    x, image = numbers(B, 3, 7), numbers(B, 2, 5, 6)
    variants: list[dict[str, Any]] = [
        {"size": (2,)},
        {"size": (3,), "stride": (1,), "padding": 1},
        {"size": (3,), "stride": (2,), "padding": "same"},
        {"size": (3,), "stride": (3,), "padding": "valid", "ceil": True},
        {"size": (3,), "stride": (1,), "padding": ((2, 0),)},
        {"size": (1,), "stride": (1,)},
    ]
    for name in ("max-pool", "average-pool"):
        for variant in variants:
            yield call(name, x, **variant)
        yield call(name, image, size=(2, 3), stride=(1, 2), padding=((1, 0), (0, 2)))
        yield call(name, image, size=(3, 2), padding=(1, 0), ceil=True)
        yield call(name, numbers(B, 1, 3, 4, 3), size=(2, 2, 2), stride=(1,))
    yield call("max-pool", edges(B, 2, 9), size=(3,))
    for padding in (1, "same"):
        yield call("average-pool", x, size=(3,), padding=padding, count_include_pad=True)
    yield call("average-pool", x, size=(2,), stride=(3,), ceil=True, count_include_pad=True)

    for size in ((10, 12), (3, 4), (5, 9)):
        yield call("resize", image, size=size, mode="nearest")
        for mode in ("linear", "cubic"):
            yield call("resize", image, size=size, mode=mode, dtypes=FLOATS)
            yield call("resize", image, size=size, mode=mode, align_corners=True, dtypes=FLOATS)
    yield call("resize", x, size=(14,), dtypes=FLOATS)
    yield call("resize", numbers(4, B, 3), size=(6,), dtypes=FLOATS)
    yield call("resize", numbers(B, 3), size=(1,), mode="nearest")


def _convolutions() -> Iterator[Sample]:
    x, w = numbers(B, 4, 7), numbers(6, 4, 3)
    for precision in ("f32", "bf16"):
        yield call("conv", x, w, precision=precision)
        yield call("conv", x, w, numbers(6), given=("bias",), precision=precision)
    for padding in (1, "same", "valid", (2,), ((2, 0),)):
        yield call("conv", x, w, padding=padding)
    yield call("conv", x, w, stride=(2,), padding="same", dilation=(2,))
    yield call("conv", x, numbers(4, 1, 3), groups=4, padding=((2, 0),))
    yield call("conv", x, numbers(6, 2, 2), groups=2)
    yield call("conv", x, numbers(6, 4, 1))
    image = numbers(B, 2, 5, 6)
    yield call("conv", image, numbers(3, 2, 2, 3), stride=(1, 2), padding=((1, 0), (0, 2)))
    yield call("conv", image, numbers(3, 2, 3, 3), dilation=(1, 2), padding=(1, 2))
    yield call("conv", numbers(B, 1, 3, 4, 3), numbers(2, 1, 2, 2, 2))
    for precision in ("f32", "bf16"):
        yield call("conv-transpose", x, numbers(4, 6, 3), precision=precision)
    yield call("conv-transpose", x, numbers(4, 6, 3), numbers(6), given=("bias",), stride=(2,))
    yield call("conv-transpose", x, numbers(4, 3, 2), groups=2, stride=(3,), padding=2)
    yield call("conv-transpose", x, numbers(4, 1, 3), groups=4, padding=((0, 2),))
    yield call("conv-transpose", x, numbers(4, 2, 1), dilation=(9,))
    options = {"stride": (2, 3), "padding": ((1, 0), 2), "output-padding": (1, 2)}
    yield call("conv-transpose", image, numbers(2, 3, 2, 3), dilation=(1, 2), **options)
    yield call("conv-transpose", numbers(B, 1, 2, 3, 2), numbers(1, 2, 2, 2, 2))
    # One position more than the form for f64 has.
    yield call("conv", numbers(B, 1, 4097), numbers(1, 1, 4097), dtypes=(DType.F64,))
    yield call("conv-transpose", numbers(B, 1, 2), numbers(1, 1, 4097), dtypes=(DType.F64,))
