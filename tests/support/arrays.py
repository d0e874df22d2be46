"""Random arrays of every dtype, and shapes and axes for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, DType

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = st.sampled_from(list(DType))
#: The opset of the portable profile, that of the fused one, and the newest.
OPSETS = st.sampled_from([18, 23, 25])


def random_array(
    seed: int, dtype: DType, shape: tuple[int, ...], *, special: bool = False
) -> Array:
    """Numbers of both signs, few enough to tie now and then; `special` adds NaN and infinities,
    or the extremes of whole numbers."""
    generator = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return np.asarray(generator.random(shape) < 0.5)
    if dtype.is_integer:
        array = np.asarray(generator.integers(-9, 10, shape)).astype(dtype.numpy)
        extremes: list[Any] = [np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max]
    else:
        array = np.asarray(np.round(generator.normal(0, 2, shape), 2)).astype(dtype.numpy)
        extremes = [np.nan, np.inf, -np.inf, -0.0, 0.0]
    if special:
        chosen = generator.choice(np.asarray(extremes, dtype.numpy), shape)
        array = np.where(generator.random(shape) < 0.3, chosen, array)
    return np.asarray(array)


def assert_same(found: Array, want: Array) -> None:
    """One dtype, one shape, and the same bits."""
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    assert found.tobytes() == want.tobytes(), f"{found} is not {want}"


def shapes(least_rank: int = 0, most_rank: int = 4, least: int = 0) -> Any:
    """Shapes small enough to compare whole, with empty and single axes among them."""
    return st.lists(st.integers(least, 4), min_size=least_rank, max_size=most_rank).map(tuple)


@st.composite
def shape_and_axis(draw: Any, least: int = 0, most_rank: int = 4) -> tuple[tuple[int, ...], int]:
    """A shape and one of its axes, counted from either end."""
    shape = draw(shapes(1, most_rank, least))
    return shape, draw(st.integers(-len(shape), len(shape) - 1))


def batch_axis_of(data: Any, shape: tuple[int, ...], *barred: int) -> int | None:
    """None or an axis to be the symbolic batch: one that is not barred and has a record."""
    rank = len(shape)
    axes = {a for a in range(rank) if shape[a] > 0} - {a % rank for a in barred if rank}
    chosen: int | None = data.draw(st.sampled_from([None, *sorted(axes)]), "batch axis")
    return chosen
