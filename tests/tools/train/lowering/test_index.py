"""Reading and adding by indices in JAX, also where an index is out of range."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType
from support.differentiated import apply, gradients, normal, reference
from support.harness import assert_close

NAN = np.nan
INTEGERS = [np.int32, np.int64]


def in_jax(name: str, *inputs: Array, **attributes: Any) -> Array:
    named = {key.replace("_", "-"): value for key, value in attributes.items()}
    return np.asarray(jax.jit(partial(apply, name, **named))(list(inputs))[0])


def check(name: str, *inputs: Array, **attributes: Any) -> None:
    named = {key.replace("_", "-"): value for key, value in attributes.items()}
    assert_close(in_jax(name, *inputs, **attributes), reference(name, inputs, **named)[0])


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("index", INTEGERS)
def test_the_first_and_the_last_from_both_ends(dtype: DType, index: Any) -> None:
    x = np.arange(12).reshape(4, 3).astype(dtype.numpy)
    ends = np.array([0, 3, -1, -4], index)
    check("take", x, ends)
    check("take", x, ends[0])
    check("take-along", x, np.stack([ends] * 3, 1), axis=0)
    check("gather-nd", x, ends[:, None])
    check("scatter-set", x, ends[:, None], x[::-1])
    if dtype is not DType.BOOL:
        for name in ("scatter-add", "scatter-max", "scatter-min"):
            check(name, x, ends[:, None], x[::-1])


def test_nothing_is_asked() -> None:
    x = normal(4, 3)
    none = np.zeros((2, 0), np.int32)
    check("take", x, none)
    check("take", x[:0], none)
    check("take", x[:, :0], np.array([1, 2]))
    check("take", x[:, :0], np.zeros((0, 5), np.int64), axis=1)
    check("take-along", x, np.zeros((4, 0), np.int32), axis=1)
    check("take-along", x[:, :0], np.zeros((4, 0), np.int32), axis=1)
    check("gather-nd", x, np.zeros((0, 2), np.int32))
    check("gather-nd", x[:, :0], np.array([[1], [-4]]))
    check("gather-nd", x[:0], np.zeros((0, 1), np.int32))
    for name in ("scatter-add", "scatter-max", "scatter-min", "scatter-set"):
        check(name, x, np.zeros((0, 1), np.int32), x[:0])
        check(name, x[:, :0], np.array([[1], [-4]]), x[:2, :0])
        check(name, x[:0], np.zeros((0, 1), np.int32), x[:0])


@pytest.mark.parametrize("index", INTEGERS)
def test_out_of_range_nan_is_read(index: Any) -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    far = np.iinfo(index)
    wrong = np.array([0, 2, -3, far.max, far.min, -1], index)
    nan = [NAN, NAN]
    want = [[1, 2], nan, nan, nan, nan, [3, 4]]
    np.testing.assert_array_equal(in_jax("take", x, wrong), want)
    np.testing.assert_array_equal(in_jax("gather-nd", x, wrong[:, None]), want)
    along = in_jax("take-along", x, np.stack([wrong, wrong], 1), axis=0)
    np.testing.assert_array_equal(along, want)
    np.testing.assert_array_equal(in_jax("take", x[:0], wrong), [nan] * 6)
    np.testing.assert_array_equal(in_jax("gather-nd", x[:0], wrong[:, None]), [nan] * 6)
    one = np.array([[1, 0], [1, 2], [-3, 0]], index)
    np.testing.assert_array_equal(in_jax("gather-nd", x, one), [3, NAN, NAN])


def test_out_of_range_nan_is_added_nearby() -> None:
    x = np.zeros((3,))
    indices = np.array([[1], [3], [1]])
    found = in_jax("scatter-add", x, indices, np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(found, [0, 5, NAN])
    found = in_jax("scatter-add", x, indices - 5, np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(found, [NAN, 2, 0])
    for name in ("scatter-max", "scatter-set"):
        found = in_jax(name, x, indices, np.array([1.0, 2.0, 4.0]))
        np.testing.assert_array_equal(found, [0, 4, NAN])


def test_out_of_range_whole_numbers_stay() -> None:
    x = np.array([1, 2, 3])
    np.testing.assert_array_equal(in_jax("take", x, np.array([0, 3])), [1, np.iinfo(np.int64).min])
    found = in_jax("scatter-add", x, np.array([[3], [0], [-4]]), np.array([5, 6, 7]))
    np.testing.assert_array_equal(found, [7, 2, 3])
    for name, first in (("scatter-max", 6), ("scatter-min", 1), ("scatter-set", 6)):
        found = in_jax(name, x, np.array([[3], [0], [-4]]), np.array([50, 6, -7]))
        np.testing.assert_array_equal(found, [first, 2, 3])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_added_integers_wrap_around(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    updates = np.array([limits.max, limits.max, limits.min], dtype)
    check("scatter-add", np.array([5, 5], dtype), np.array([[0], [-2], [1]]), updates)


def test_bf16_is_added_in_f32() -> None:
    ones = np.ones(1000, ml_dtypes.bfloat16)
    check("scatter-add", np.zeros(2, ml_dtypes.bfloat16), np.ones((1000, 1), np.int32), ones)


def test_a_row_that_is_read_often_sums_its_gradients() -> None:
    x, indices = np.zeros((4, 2)), np.array([1, -3, 1, 0])
    asked = np.arange(8.0).reshape(4, 2)
    want = [[6, 7], [0 + 2 + 4, 1 + 3 + 5], [0, 0], [0, 0]]
    np.testing.assert_array_equal(gradients("take", [x, indices], [asked])[0], want)
    np.testing.assert_array_equal(gradients("gather-nd", [x, indices[:, None]], [asked])[0], want)
    along = np.stack([indices, indices], 1)
    np.testing.assert_array_equal(gradients("take-along", [x, along], [asked], axis=0)[0], want)


def test_what_is_added_has_the_gradient_of_where_it_went() -> None:
    asked = np.array([1.0, 2.0, 3.0])
    x, updates = gradients("scatter-add", [asked * 0, np.array([[2], [0], [-1]]), asked], [asked])
    np.testing.assert_array_equal(x, asked)
    np.testing.assert_array_equal(updates, [3, 1, 3])


def test_what_is_chosen_has_the_gradient_of_where_it_went() -> None:
    """The last of those that tie; what stood there where none is chosen."""
    asked, x = np.array([1.0, 2.0, 3.0]), np.array([0.0, 9.0, 0.0])
    indices, updates = np.array([[2], [0], [-1], [1]]), np.array([5.0, 4.0, 5.0, 8.0])
    of_x, of_updates = gradients("scatter-max", [x, indices, updates], [asked])
    np.testing.assert_array_equal(of_x, [0, 2, 0])
    np.testing.assert_array_equal(of_updates, [0, 1, 3, 0])
    of_x, of_updates = gradients("scatter-set", [x, indices, updates], [asked])
    np.testing.assert_array_equal(of_x, [0, 0, 0])
    np.testing.assert_array_equal(of_updates, [0, 1, 3, 2])


def test_an_index_out_of_range_has_no_gradient() -> None:
    x, wrong = np.ones((2, 2)), np.array([0, 2, -3])
    np.testing.assert_array_equal(gradients("take", [x, wrong])[0], [[1, 1], [0, 0]])
