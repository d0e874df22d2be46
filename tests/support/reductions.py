"""Shapes and the axes of them that are reduced."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from support.arrays import shapes


@st.composite
def reductions(draw: Any, least: int = 0) -> tuple[tuple[int, ...], tuple[int, ...] | None, bool]:
    """A shape, axes of it in any order and from either end, and whether they are kept."""
    shape = draw(shapes(0, 4, least))
    rank = len(shape)
    order = draw(st.permutations(range(rank)))[: draw(st.integers(0, rank))]
    axes = tuple(axis - draw(st.sampled_from([0, rank])) for axis in order)
    return shape, draw(st.sampled_from([axes, None])), draw(st.booleans())


def axes_left(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> int:
    """How many axes are not reduced."""
    return 0 if axes is None else len(shape) - len(axes)
