"""Tests of variance, logsumexp and norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, DType
from support.arrays import OPSETS, SEEDS, batch_axis_of, random_array
from support.harness import RELATIVE, check, check_axis_rule, error_of
from support.reductions import axes_left, reductions

FLOATS = st.sampled_from([DType.F32, DType.F64, DType.BF16])


def rows_of(x: Array, axes: Any, keep: bool, function: Any) -> Array:
    """The function of the list of elements that become one."""
    reduced = set(range(x.ndim) if axes is None else (a % x.ndim for a in axes))
    left = [a for a in range(x.ndim) if a not in reduced]
    rows = np.transpose(x, [*left, *sorted(reduced)])
    shape = [x.shape[a] for a in left]
    rows = rows.reshape(*shape, math.prod(x.shape[a] for a in reduced))
    result = np.zeros(shape)
    for place in np.ndindex(*shape):
        result[place] = function([float(v) for v in rows[place]])
    return np.expand_dims(result, tuple(sorted(reduced))) if keep else result


@given(reductions(1), st.integers(0, 2), FLOATS, OPSETS, SEEDS, st.data())
def test_variance(
    case: Any, correction: int, dtype: DType, opset: int, seed: int, data: Any
) -> None:
    shape, axes, keep = case
    left = axes_left(shape, axes)
    x = random_array(seed, dtype, shape)
    count = math.prod(shape[a] for a in (range(len(shape)) if axes is None else axes))
    if count <= correction:
        error_of("E-VALUE-001", "variance", [x], axis=axes, correction=correction)  # variance 2
        return
    attributes = {"axis": axes, "keep": keep, "correction": correction}
    batch = batch_axis_of(data, shape)
    # The difference from the mean is of the size of its rounding where all elements are equal.
    absolute = {DType.F32: 1e-5, DType.F64: 1e-12, DType.BF16: 1e-4}[dtype]
    (result,) = check("variance", [x], [batch], opset=opset, absolute=absolute, **attributes)

    def variance(row: list[float]) -> float:
        mean = math.fsum(row) / len(row)
        return math.fsum((v - mean) ** 2 for v in row) / (len(row) - correction)

    want = rows_of(x, axes, keep, variance)
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=RELATIVE[dtype], atol=absolute)
    assert check_axis_rule("variance", [x], **attributes) == left


def test_variance_over_the_batch() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    check("variance", [x], [0], axis=(0,), correction=1)
    check("variance", [x], [0], correction=2)
    # More correction than records: NumPy divides by 0.
    (result,) = check("variance", [x[:1]], [0], axis=(0,), correction=1)
    assert np.isnan(result).all()


def test_variance_refuses() -> None:
    x = np.zeros((2, 3), np.float32)
    error_of("E-VALUE-001", "variance", [x], axis=(2,))  # variance 1
    error_of("E-VALUE-001", "variance", [x], correction=-1)  # variance 2
    error_of("E-VALUE-001", "variance", [x], axis=(0,), correction=2)  # variance 2
    error_of("E-VALUE-001", "variance", [x[:0]])  # variance 2


@given(reductions(), st.booleans(), FLOATS, OPSETS, SEEDS, st.data())
def test_logsumexp(
    case: Any, special: bool, dtype: DType, opset: int, seed: int, data: Any
) -> None:
    shape, axes, keep = case
    x = random_array(seed, dtype, shape, special=special)
    # Some far beyond what exp can take.
    with np.errstate(invalid="ignore"):
        x = np.asarray(np.where(x > 3, x * x.dtype.type(1000), x))
    batch = batch_axis_of(data, shape)
    (result,) = check("logsumexp", [x], [batch], axis=axes, keep=keep, opset=opset)

    def logsumexp(row: list[float]) -> float:
        if any(map(math.isnan, row)):
            return math.nan
        largest = max(row, default=-math.inf)
        if math.isinf(largest):
            return largest
        return largest + math.log(math.fsum(math.exp(v - largest) for v in row))

    want = rows_of(x, axes, keep, logsumexp)
    tolerance = {"rtol": RELATIVE[dtype], "atol": 1e-2 if dtype is DType.BF16 else 1e-6}
    np.testing.assert_allclose(result.astype(np.float64), want, **tolerance)
    claims = check_axis_rule("logsumexp", [x], axis=axes, keep=keep)
    assert claims == axes_left(shape, axes)


def test_logsumexp_refuses() -> None:
    error_of("E-VALUE-001", "logsumexp", [np.zeros(2, np.float32)], axis=(1,))  # logsumexp 1


@given(
    reductions(),
    st.sampled_from([1.0, 2.0, math.inf]),
    st.booleans(),
    FLOATS,
    OPSETS,
    SEEDS,
    st.data(),
)
def test_norm(
    case: Any, order: float, special: bool, dtype: DType, opset: int, seed: int, data: Any
) -> None:
    shape, axes, keep = case
    if order == math.inf:
        shape = tuple(max(d, 1) for d in shape)
    x = random_array(seed, dtype, shape, special=special)
    attributes = {"axis": axes, "keep": keep, "order": order}
    batch = batch_axis_of(data, shape)
    (result,) = check("norm", [x], [batch], opset=opset, **attributes)

    def norm(row: list[float]) -> float:
        if any(map(math.isnan, row)):
            return math.nan
        if order == math.inf:
            return max(map(abs, row))
        return sum(abs(v) ** order for v in row) ** (1 / order)

    want = rows_of(x, axes, keep, norm)
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=RELATIVE[dtype])
    assert check_axis_rule("norm", [x], **attributes) == axes_left(shape, axes)


@pytest.mark.parametrize("order", [0.0, 3.0, -math.inf, math.nan])
def test_norm_has_three_orders(order: float) -> None:
    error_of("E-VALUE-001", "norm", [np.zeros(2, np.float32)], order=order)  # norm 2


def test_norm_refuses() -> None:
    x = np.zeros((2, 0), np.float32)
    error_of("E-VALUE-001", "norm", [x], axis=(2,))  # norm 1
    error_of("E-VALUE-001", "norm", [x], order=math.inf)  # norm 3
    error_of("E-DTYPE-002", "norm", [x.astype(np.int32)])
