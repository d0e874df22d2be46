"""Moves of elements in JAX, where axes are empty and numbers are larger than any index."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType
from support.differentiated import apply, gradients, normal, reference

HUGE = 10**30


def check(name: str, *inputs: Array, **attributes: Any) -> None:
    attributes = {key.rstrip("_"): value for key, value in attributes.items()}
    found = jax.jit(partial(apply, name, **attributes))(list(inputs))
    for a, b in zip(found, reference(name, inputs, **attributes), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), b)


@pytest.mark.parametrize("length", [0, 1, 5])
@pytest.mark.parametrize("step", [1, 2, 7, HUGE, -1, -2, -7, -HUGE])
def test_slices_are_those_of_python(length: int, step: int) -> None:
    x = np.arange(2 * length).reshape(2, length)
    for start in (None, 0, 2, -2, HUGE, -HUGE):
        for end in (None, 0, 4, -1, HUGE, -HUGE):
            check("slice", x, axis=1, from_=start, to=end, step=step)


def test_a_slice_gives_its_gradient_back_to_where_it_came_from() -> None:
    (found,) = gradients("slice", [np.zeros(5)], [np.array([1.0, 2.0])], **{"from": 3, "step": -2})
    np.testing.assert_array_equal(found, [0, 2, 0, 1, 0])


@pytest.mark.parametrize("shift", [0, 1, -1, 3, 4, HUGE, -HUGE])
def test_rolls_of_any_shift(shift: int) -> None:
    check("roll", np.arange(6).reshape(2, 3), shift=(shift,))
    check("roll", np.zeros((2, 0)), shift=(shift,))
    check("roll", np.arange(2), shift=(shift,), axis=(0,))
    check("roll", np.arange(12).reshape(2, 3, 2), shift=(shift, 1), axis=(1, 0))


@pytest.mark.parametrize("count", [0, 1, -1, 3, 4, HUGE, -HUGE])
def test_shifts_by_any_count(count: int) -> None:
    check("shift", np.arange(6).reshape(2, 3), count=count)
    check("shift", np.zeros((2, 0)), count=count)
    check("shift", np.arange(6.0).reshape(3, 2), count=count, axis=0, value=float("-inf"))


def test_parts_of_no_length() -> None:
    x = np.arange(6).reshape(2, 3)
    check("split", x, parts=(0, 3, 0))
    check("split", x[:, :0], parts=(0, 0))
    check("split", x[:, :0], parts=(2,))
    check("concat", x[:, :0], x[:, :0])
    check("stack", x[:, :0])


def test_a_split_of_which_one_part_is_used() -> None:
    asked = [np.zeros((2, 1)), np.ones((2, 2))]
    (found,) = gradients("split", [np.zeros((2, 3))], asked, parts=(1, 2))
    np.testing.assert_array_equal(found, [[0, 1, 1], [0, 1, 1]])


def test_nothing_is_padded_and_repeated() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check("pad", x[:, :0], before=(1, 2), value=7.0)
    check("pad", x[:0], after=(0, 2), mode="edge")
    check("pad", x[0, 0], value=3.0)
    check("pad", x[0, 0], mode="reflect")
    check("tile", x[0, 0], repeats=())
    check("tile", x, repeats=(0, 2))
    check("tile", x[:, :0], repeats=(3, 2))
    check("broadcast-to", x[:1, :0], shape=(4, 2, 0))


@pytest.mark.parametrize("dtype", DType)
def test_padding_is_exact_in_every_dtype(dtype: DType) -> None:
    x = np.array([[0, 1, 1], [1, 0, 1]], dtype.numpy)
    value = {DType.I64: 2**53, DType.I32: -(2**31), DType.BOOL: 1}.get(dtype, 1e-3)
    check("pad", x, before=(1, 0), after=(0, 2), value=value)
    for mode in ("edge", "reflect"):
        check("pad", x, before=(1, 2), after=(0, 1), mode=mode)


def test_an_element_that_is_seen_often_sums_its_gradients() -> None:
    x = normal(3, dtype=np.float64)
    (found,) = gradients("pad", [x], before=(2,), after=(1,), mode="edge")
    np.testing.assert_array_equal(found, [3, 1, 2])
    (found,) = gradients("pad", [x], before=(2,), after=(1,), mode="reflect")
    np.testing.assert_array_equal(found, [1, 3, 2])
    (found,) = gradients("tile", [x], repeats=(4,))
    np.testing.assert_array_equal(found, [4, 4, 4])
    (found,) = gradients("broadcast-to", [x], shape=(5, 3))
    np.testing.assert_array_equal(found, [5, 5, 5])
