"""What counts as the same numbers, and what rounding must explain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx import difference
from sexpgpu.export.onnx.difference import EXIT_CODE, PLAIN, Difference, compare
from sexpgpu.schemas.errors import SexpgpuError

FLOATS = [np.float32, np.float64, ml_dtypes.bfloat16]


def unasked() -> Iterator[Array]:
    pytest.fail("a plainly small difference needs no explaining")
    yield


def refused(found: Array, want: Array, *rounded: Array) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        compare("y", found, want, rounded)
    assert caught.value.code == "E-VERIFY-001"
    assert caught.value.exit_code == EXIT_CODE == 3
    assert "`y`" in caught.value.message
    return caught.value


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int64, np.bool_])
def test_equal_numbers(dtype: Any) -> None:
    array = np.array([0, 1, 0, 1]).astype(dtype)
    difference = compare("y", array.copy(), array, unasked())
    assert (difference.absolute, difference.relative) == (0, 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_few_roundings_are_a_share_of_the_largest(dtype: Any) -> None:
    want = np.array([100.0, 1e-3]).astype(dtype)
    share = list(PLAIN.values())[FLOATS.index(dtype)]
    change = np.array([0, share * 50])
    found = (want.astype(np.float64) + change).astype(dtype)
    difference = compare("y", found, want, unasked())
    assert difference.relative == pytest.approx(share / 2, rel=0.02)
    assert difference.tolerance == share


@pytest.mark.parametrize("dtype", FLOATS)
def test_more_is_wrong_where_rounding_does_not_explain_it(dtype: Any) -> None:
    want = np.array([100.0, 1e-3]).astype(dtype)
    error = refused((want.astype(np.float64) * 1.05).astype(dtype), want, want, want)
    assert "of the largest magnitude" in (error.came or "")


def test_what_rounding_explains() -> None:
    want, found = np.float32([1.0, 2.0]), np.float32([1.003, 2.0])
    rounded = [np.float32([1.001, 2.0])]
    difference = compare("y", found, want, rounded)
    assert difference.tolerance == pytest.approx(4 * 0.001 / 2, rel=1e-3)
    refused(np.float32([1.005, 2.0]), want, *rounded)


def test_it_is_asked_no_longer_than_it_must() -> None:
    want, found = np.float32([1.0]), np.float32([1.003])

    def rounded() -> Iterator[Array]:
        yield np.float32([1.001])
        pytest.fail("one explanation is enough")

    compare("y", found, want, rounded())


def test_infinities_and_nan_are_the_same() -> None:
    want = np.float32([np.inf, -np.inf, np.nan, 1])
    compare("y", want.copy(), want, unasked())
    for other in (
        [-np.inf, -np.inf, np.nan, 1],
        [np.inf, 3e38, np.nan, 1],
        [np.inf, -np.inf, 0, 1],
    ):
        error = refused(np.float32(other), want, want)
        assert (error.came or "").startswith("1 elements that are infinite or NaN")


def test_an_overflow_that_rounding_decides() -> None:
    want, found = np.float32([3.4e38, 1.0]), np.float32([np.inf, 1.0])
    compare("y", found, want, [want, np.float32([np.inf, 1.0])])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.bool_])
def test_whole_numbers_are_equal(dtype: Any) -> None:
    want = np.zeros((2, 50), dtype)
    found = want.copy()
    found[1, 3] = 1
    error = refused(found, want, want)
    assert "at [1, 3]" in (error.came or "")
    assert "1 of 100 elements" in (error.came or "")


def test_whole_numbers_that_rounding_decides() -> None:
    want, found = np.int32([4, 7]), np.int32([4, 9])
    difference = compare("y", found, want, [want, np.int32([4, 3])])
    assert (difference.absolute, difference.relative) == (1, 0.5)
    refused(np.int32([5, 9]), want, np.int32([4, 3]))


@pytest.mark.parametrize(
    ("found", "came"),
    [
        (np.zeros((3, 2), np.float32), "[3, 2] float32"),
        (np.zeros((2, 3), np.float64), "[2, 3] float64"),
    ],
)
def test_another_shape_or_dtype(found: Array, came: str) -> None:
    error = refused(found, np.zeros((2, 3), np.float32))
    assert (error.came, error.expected) == (came, "[2, 3] float32")
    assert "another shape or dtype" in error.message


@pytest.mark.parametrize("place", [0, 3, 4, 9])
def test_large_outputs_are_compared_by_pieces(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "_PIECE", 4)
    want = np.arange(10, dtype=np.float32).reshape(2, 5)
    compare("y", want.copy(), want, unasked())
    for value in (want.flat[place] + 1, np.nan):
        found = want.copy()
        found.flat[place] = value
        refused(found, want, want)
        compare("y", found, want, [found])


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.bool_])
def test_no_elements(dtype: Any) -> None:
    empty = np.zeros((0, 3), dtype)
    assert compare("y", empty, empty, unasked()).absolute == 0


def test_the_larger_of_each_is_kept() -> None:
    difference = Difference(1.0, 0.1, 0.5)
    difference.widen(Difference(0.5, 0.2, 0.4))
    assert difference == Difference(1.0, 0.2, 0.5)
