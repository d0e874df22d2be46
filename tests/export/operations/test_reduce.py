"""Tests of sum, mean, prod, max, min, any and all, and of what all reductions share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import OPSETS, SEEDS, batch_axis_of, random_array
from support.harness import check, check_axis_rule, error_of, single
from support.reductions import axes_left, reductions

FLOATS = [DType.F32, DType.F64, DType.BF16]
INTEGERS = [DType.I32, DType.I64]


def one_by_one(x: Array, axes: Any, keep: bool, step: Any, start: Any) -> Array:
    """The reduction as a loop over all elements."""
    reduced = {a % x.ndim for a in (range(x.ndim) if axes is None else axes)} if x.ndim else set()
    kept = np.full([1 if a in reduced else d for a, d in enumerate(x.shape)], start)
    for place in np.ndindex(x.shape):
        target = tuple(0 if a in reduced else i for a, i in enumerate(place))
        kept[target] = step(kept[target], x[place])
    return kept if keep else kept.squeeze(tuple(reduced))


@given(reductions(), st.sampled_from(["sum", "prod"]), st.sampled_from(FLOATS), OPSETS, SEEDS)
def test_sum_and_prod_of_floats(case: Any, name: str, dtype: DType, opset: int, seed: int) -> None:
    shape, axes, keep = case
    x = random_array(seed, dtype, shape)
    (result,) = check(name, [x], axis=axes, keep=keep, opset=opset)
    step, start = (np.add, 0.0) if name == "sum" else (np.multiply, 1.0)
    want = one_by_one(x.astype(np.float64), axes, keep, step, start)
    # The rounding of bf16, whose product keeps 8 bits.
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=1e-2, atol=1e-4)


@given(
    reductions(),
    st.sampled_from(["sum", "prod"]),
    st.sampled_from(INTEGERS),
    st.booleans(),
    OPSETS,
    SEEDS,
)
def test_sum_and_prod_of_integers_wrap(
    case: Any, name: str, dtype: DType, special: bool, opset: int, seed: int
) -> None:
    shape, axes, keep = case
    x = random_array(seed, dtype, shape, special=special)
    (result,) = check(name, [x], axis=axes, keep=keep, opset=opset)
    # Python's whole numbers, cut to the dtype's bits at the end.
    bits = 8 * dtype.itemsize
    step, start = (np.add, 0) if name == "sum" else (np.multiply, 1)
    want = one_by_one(x.astype(object), axes, keep, step, start)
    cut = np.vectorize(lambda n: (n + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1), otypes=[object])
    np.testing.assert_array_equal(result, cut(want).astype(dtype.numpy) if want.size else result)
    assert result.shape == want.shape


@given(reductions(1), st.sampled_from(["max", "min"]), st.booleans(), st.data(), OPSETS, SEEDS)
def test_extremes(case: Any, name: str, special: bool, data: Any, opset: int, seed: int) -> None:
    shape, axes, keep = case
    dtype = data.draw(st.sampled_from([*FLOATS, *INTEGERS]))
    x = random_array(seed, dtype, shape, special=special)
    batch = batch_axis_of(data, shape)
    (result,) = check(name, [x], [batch], axis=axes, keep=keep, opset=opset)
    start = -np.inf if name == "max" else np.inf
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        start = limits.min if name == "max" else limits.max
    wide = x.astype(np.float64) if dtype.is_float else x.astype(object)
    step = np.maximum if name == "max" else np.minimum
    want = one_by_one(wide, axes, keep, step, start)
    np.testing.assert_array_equal(result.astype(want.dtype), want)
    assert check_axis_rule(name, [x], axis=axes, keep=keep) == axes_left(shape, axes)


def test_extremes_of_a_long_axis_see_nan_anywhere() -> None:
    x = np.random.default_rng(0).normal(size=(70, 67)).astype(np.float32)
    x[np.arange(67), np.arange(67)] = np.nan
    for name in ("max", "min"):
        assert np.isnan(check(name, [x], axis=(1,))[0]).tolist() == [True] * 67 + [False] * 3
        assert np.isnan(check(name, [x], axis=(0,))[0]).all()


@given(reductions(), st.sampled_from(["any", "all"]), OPSETS, SEEDS, st.data())
def test_any_and_all(case: Any, name: str, opset: int, seed: int, data: Any) -> None:
    shape, axes, keep = case
    x = random_array(seed, DType.BOOL, shape)
    batch = batch_axis_of(data, shape)
    (result,) = check(name, [x], [batch], axis=axes, keep=keep, opset=opset)
    step, start = (np.logical_or, False) if name == "any" else (np.logical_and, True)
    np.testing.assert_array_equal(result, one_by_one(x, axes, keep, step, start))
    assert check_axis_rule(name, [x], axis=axes, keep=keep) == axes_left(shape, axes)


@given(reductions(1), st.sampled_from(FLOATS), OPSETS, SEEDS, st.data())
def test_mean(case: Any, dtype: DType, opset: int, seed: int, data: Any) -> None:
    shape, axes, keep = case
    x = random_array(seed, dtype, shape)
    batch = batch_axis_of(data, shape)
    (result,) = check("mean", [x], [batch], axis=axes, keep=keep, opset=opset)
    total = one_by_one(x.astype(np.float64), axes, keep, np.add, 0.0)
    want = total / (x.size / max(total.size, 1))
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=1e-2, atol=1e-4)


@given(reductions(), st.sampled_from(["sum", "prod", "mean"]), SEEDS, st.data())
def test_axes_that_stay(case: Any, name: str, seed: int, data: Any) -> None:
    shape, axes, keep = case
    if name == "mean":
        shape = tuple(max(d, 1) for d in shape)
    x = random_array(seed, DType.F32, shape)
    batch = batch_axis_of(data, shape)
    check(name, [x], [batch], axis=axes, keep=keep)
    assert check_axis_rule(name, [x], axis=axes, keep=keep) == axes_left(shape, axes)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "any", "all"])
def test_reductions_refuse_axes(name: str) -> None:
    x = np.zeros((2, 3), bool if name in ("any", "all") else np.float32)
    error_of("E-VALUE-001", name, [x], axis=(2,))  # sum 1, mean 1, prod 1, max 1, min 1
    error_of("E-VALUE-001", name, [x], axis=(0, -2))  # any 1, all 1


@pytest.mark.parametrize("name", ["mean", "max", "min"])
def test_some_reductions_need_an_element(name: str) -> None:
    x = np.zeros((2, 0), np.float32)
    error_of("E-VALUE-001", name, [x])  # mean 2, max 2, min 2
    error_of("E-VALUE-001", name, [x], axis=(1,))
    assert check(name, [x], axis=(0,))[0].shape == (0,)


def test_reductions_refuse_dtypes() -> None:
    x = np.zeros((2, 3), np.int32)
    error_of("E-DTYPE-002", "mean", [x])
    error_of("E-DTYPE-002", "any", [x])
    for name in ("sum", "prod", "max", "min"):
        error_of("E-DTYPE-002", name, [x.astype(bool)])


def test_bf16_is_reduced_in_f32() -> None:
    # Added one by one in bf16, 1 would be lost beside 256.
    x = np.array([256] + [1] * 256, np.float32).astype(DType.BF16.numpy)
    assert float(check("sum", [x])[0]) == 512


def test_product_of_integers_over_the_batch_has_no_onnx_form() -> None:
    graph, _ = single("prod", [np.ones((2, 3), np.int32)], [0])
    with pytest.raises(SexpgpuError) as caught:
        build_model(graph, {}.__getitem__, BuildOptions())
    assert caught.value.code == "E-ONNX-001"
    check("prod", [np.ones((2, 3), np.float32)], [0])
    check("prod", [np.full((2, 3), 5, np.int32)], [0], axis=(1,))
