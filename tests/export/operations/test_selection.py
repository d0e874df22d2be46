"""Tests of selecting, repeating and extending along axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sexpgpu.export.graph.types import DType
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import (
    DTYPES,
    OPSETS,
    SEEDS,
    assert_same,
    batch_axis_of,
    random_array,
    shape_and_axis,
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
    error_of("E-VALUE-001", "slice", [x], axis=2)
    with pytest.raises(SexpgpuError) as caught:  # slice 2
        single("slice", [x], [0], **{"from": 0, "to": 1})
    assert caught.value.code == "E-SHAPE-002"
