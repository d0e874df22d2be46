"""Orders in JAX: NaN, infinities, ties, the extremes of whole numbers, and gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, DType
from support.differentiated import apply, gradients, reference
from support.harness import assert_close

NUMBERS = [dtype for dtype in DType if dtype is not DType.BOOL]


@cache
def compiled(name: str, **attributes: Any) -> Callable[[list[Array]], list[jax.Array]]:
    """The operation, whose programs are kept from one example to the next."""
    return jax.jit(partial(apply, name, **attributes))


def check(name: str, x: Array, **attributes: Any) -> None:
    found = compiled(name, **attributes)([x])
    for a, b in zip(found, reference(name, [x], **attributes), strict=True):
        assert_close(np.asarray(a), b, relative=0, absolute=0)


def check_all(x: Array, axis: int) -> None:
    length = x.shape[axis]
    for descending in (False, True):
        check("sort", x, axis=axis, descending=descending)
        check("argsort", x, axis=axis, descending=descending)
    for k in {0, 1, length // 2, length}:
        if k <= length:
            check("top-k", x, k=k, axis=axis)
    if length:
        check("argmax", x, axis=axis)
        check("argmin", x, axis=axis, keep=True)


def special(dtype: DType) -> list[Any]:
    """Numbers whose order is not plain to see, and some of which are equal."""
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        return [limits.min, limits.min + 1, -1, 0, 1, limits.max - 1, limits.max]
    largest = float(ml_dtypes.finfo(dtype.numpy).max)
    return [np.nan, -np.nan, np.inf, -np.inf, largest, -largest, 0.0, -0.0, 1.0, -1.0]


@given(data=st.data())
@settings(max_examples=12, deadline=None)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_order_is_that_of_the_reference(dtype: DType, data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(
            st.lists(st.sampled_from(special(dtype)), min_size=8, max_size=8),
            min_size=3,
            max_size=3,
        )
    )
    check_all(np.array(rows).astype(dtype.numpy), data.draw(st.sampled_from([0, 1, -1])))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_axes_without_elements(dtype: DType) -> None:
    check_all(np.zeros((2, 0), dtype.numpy), 1)
    check_all(np.zeros((0, 2), dtype.numpy), 1)


def test_many_ties_stay_in_their_order() -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, 5000)).astype(np.float32)
    check_all(x, 1)


def test_gradients_go_to_the_elements_that_were_taken() -> None:
    x = np.array([[3.0, 1.0, 2.0, 2.0]])
    asked = np.array([[10.0, 20.0, 30.0, 40.0]])
    (found,) = gradients("sort", [x], [asked])
    np.testing.assert_array_equal(found, [[40, 10, 20, 30]])
    (found,) = gradients("sort", [x], [asked], descending=True)
    np.testing.assert_array_equal(found, [[10, 40, 20, 30]])


def test_gradients_of_the_largest_go_by_their_positions() -> None:
    def largest(x: jax.Array) -> jax.Array:
        values, positions = apply("top-k", [x], k=2, axis=0)
        return (values * (positions + 1)).sum()

    found = jax.jit(jax.grad(largest))(np.array([1.0, 5.0, 3.0, 5.0]))
    np.testing.assert_array_equal(found, [0, 2, 0, 4])


def test_a_position_has_no_gradient() -> None:
    def scaled(x: jax.Array) -> jax.Array:
        return (x * apply("argmax", [x])[0]).sum()

    np.testing.assert_array_equal(jax.grad(scaled)(np.array([1.0, 7.0, 2.0])), [1, 1, 1])
