"""Tests of selecting, repeating and extending along axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Batch, DType
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import (
    DTYPES,
    OPSETS,
    SEEDS,
    assert_same,
    batch_axis_of,
    random_array,
    shape_and_axis,
    shapes,
)
from support.harness import check, check_axis_rule, error_of, single

BOUND = st.none() | st.integers(-7, 7)
STEP = st.integers(-3, 3).filter(bool)


@given(shape_and_axis(), st.tuples(BOUND, BOUND, STEP), DTYPES, OPSETS, SEEDS, st.data())
def test_slice_against_onnx(
    pair: tuple[tuple[int, ...], int],
    bounds: tuple[Any, Any, int],
    dtype: DType,
    opset: int,
    seed: int,
    data: Any,
) -> None:
    shape, axis = pair
    x = random_array(seed, dtype, shape, special=True)
    attributes = dict(zip(("from", "to", "step"), bounds, strict=True), axis=axis)
    batch = batch_axis_of(data, shape, axis)
    (result,) = check("slice", [x], [batch], opset=opset, **attributes)
    kept = np.arange(shape[axis])[slice(*bounds)]
    assert_same(result, np.take(x, kept, axis))
    whole = kept.tolist() == list(range(shape[axis]))
    assert check_axis_rule("slice", [x], **attributes) == len(shape) - (not whole)


def test_slice_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    error_of("E-VALUE-001", "slice", [x], step=0)  # slice 1
    error_of("E-VALUE-001", "slice", [x], axis=2)  # slice 3
    error_of("E-SHAPE-002", "slice", [x], to=Batch())
    with pytest.raises(SexpgpuError) as caught:  # slice 2
        single("slice", [x], [0], **{"from": 0, "to": 1})
    assert caught.value.code == "E-SHAPE-002"


@given(shapes(), DTYPES, OPSETS, SEEDS, st.data())
def test_flip_against_onnx(
    shape: tuple[int, ...], dtype: DType, opset: int, seed: int, data: Any
) -> None:
    rank = len(shape)
    order = data.draw(st.permutations(range(rank)))[: data.draw(st.integers(0, rank))]
    axes = tuple(axis - data.draw(st.sampled_from([0, rank])) for axis in order)
    x = random_array(seed, dtype, shape, special=True)
    batch = batch_axis_of(data, shape)
    (result,) = check("flip", [x], [batch], axis=axes, opset=opset)
    backwards = [slice(None, None, -1 if a in {b % rank for b in axes} else 1) for a in range(rank)]
    assert_same(result, x[tuple(backwards)])
    assert check_axis_rule("flip", [x], axis=axes) == rank - len(axes)


def test_flip_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    error_of("E-VALUE-001", "flip", [x], axis=(0, -2))  # flip 1
    error_of("E-VALUE-001", "flip", [x], axis=(2,))  # flip 1


@given(shape_and_axis(), st.integers(-9, 9) | st.just(10**30), DTYPES, OPSETS, SEEDS, st.data())
def test_roll_against_onnx(
    pair: tuple[tuple[int, ...], int], shift: int, dtype: DType, opset: int, seed: int, data: Any
) -> None:
    shape, axis = pair
    length = shape[axis]
    x = random_array(seed, dtype, shape, special=True)
    batch = batch_axis_of(data, shape, axis)
    (result,) = check("roll", [x], [batch], shift=(shift,), axis=(axis,), opset=opset)
    origin = [(position - shift) % length for position in range(length)]
    assert_same(result, np.take(x, origin, axis) if length else x)
    claims = check_axis_rule("roll", [x], shift=(shift,), axis=(axis,))
    assert claims == len(shape) - (origin != list(range(length)))


@given(shape_and_axis(), st.integers(-9, 9) | st.just(10**30), DTYPES, OPSETS, SEEDS, st.data())
def test_shift_against_onnx(
    pair: tuple[tuple[int, ...], int], count: int, dtype: DType, opset: int, seed: int, data: Any
) -> None:
    shape, axis = pair
    length = shape[axis]
    x = random_array(seed, dtype, shape, special=True)
    batch = batch_axis_of(data, shape, axis)
    (result,) = check("shift", [x], [batch], count=count, axis=axis, value=1.0, opset=opset)
    assert result.shape == x.shape
    for position in range(length):
        origin, found = position - count, np.take(result, position, axis)
        if 0 <= origin < length:
            assert_same(found, np.take(x, origin, axis))
        else:
            assert (found == 1).all()
    claims = check_axis_rule("shift", [x], count=count, axis=axis)
    assert claims == len(shape) - (count < 0 and length > 0)


def test_shift_refuses() -> None:
    x = np.zeros((2, 3), np.int32)
    error_of("E-VALUE-001", "shift", [x], count=1, axis=2)  # shift 1
    with pytest.raises(SexpgpuError) as caught:  # shift 2
        single("shift", [x], [0], count=1, axis=0)
    assert caught.value.code == "E-SHAPE-002"
    error_of("E-VALUE-001", "shift", [x], count=1, value=0.5)  # shift 3


@pytest.mark.parametrize("shift", [(1, -2), (2,)])
def test_roll_of_two_axes(shift: tuple[int, ...]) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(np.int32)
    (result,) = check("roll", [x], [0], shift=shift, axis=(1, -1), opset=18)
    assert_same(result, np.roll(x, shift, (1, 2)))
    assert check_axis_rule("roll", [x], shift=shift, axis=(1, -1)) == 1


def test_roll_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    error_of("E-VALUE-001", "roll", [x], shift=(1,), axis=(2,))  # roll 1
    error_of("E-VALUE-001", "roll", [x], shift=(1,), axis=(1, -1))  # roll 1
    with pytest.raises(SexpgpuError) as caught:  # roll 2
        single("roll", [x], [0], shift=(1,), axis=(0,))
    assert caught.value.code == "E-SHAPE-002"
    error_of("E-VALUE-001", "roll", [x], shift=(1, 2), axis=(1,))  # roll 3
