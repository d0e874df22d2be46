"""conv: its meaning against plain loops, its ONNX form against its meaning, its rules."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.operations.operation import (
    WHOLE,
    Apart,
    Causal,
    all_operations,
)
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import check, check_axis_rule, error_of, single

CONV = all_operations()["conv"]
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), BF16]


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def convolve(
    x: Array,
    w: Array,
    stride: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Array:
    """The definition, element by element, in f64."""
    lengths, sizes = x.shape[2:], w.shape[2:]
    counts = [
        (n + before + after - d * (k - 1) - 1) // s + 1
        for n, k, s, d, (before, after) in zip(lengths, sizes, stride, dilation, pads, strict=True)
    ]
    share, per_group = w.shape[1], w.shape[0] // groups
    y = np.zeros((x.shape[0], w.shape[0], *counts))
    for b, o in itertools.product(range(x.shape[0]), range(w.shape[0])):
        for place in itertools.product(*map(range, counts)):
            for c in range(share):
                for offset in itertools.product(*map(range, sizes)):
                    at = tuple(
                        p * s - before + k * d
                        for p, s, k, d, (before, _) in zip(
                            place, stride, offset, dilation, pads, strict=True
                        )
                    )
                    if all(0 <= i < n for i, n in zip(at, lengths, strict=True)):
                        channel = o // per_group * share + c
                        y[(b, o, *place)] += float(w[(o, c, *offset)]) * float(x[(b, channel, *at)])
    return y


@st.composite
def calls(draw: Any) -> tuple[list[Array], dict[str, Any], tuple[tuple[int, int], ...]]:
    """A tensor, a kernel and perhaps a bias; attributes; and the padding spelled out."""
    axes = draw(st.integers(1, 3))
    per_axis = st.lists(st.integers(1, 3), min_size=axes, max_size=axes).map(tuple)
    sizes, stride, dilation = draw(per_axis), draw(per_axis), draw(per_axis)
    groups = draw(st.integers(1, 3))
    share, per_group = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    reaches = [d * (k - 1) + 1 for d, k in zip(dilation, sizes, strict=True)]
    pads = draw(st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * axes))
    lengths = [
        draw(st.integers(max(0, r - sum(pair)), r + 3))
        for r, pair in zip(reaches, pads, strict=True)
    ]
    dtype = draw(st.sampled_from(DTYPES))
    batch = draw(st.integers(1, 2))
    seed = draw(st.integers(0, 1000))
    arrays = [
        normal(seed, batch, groups * share, *lengths, dtype=dtype),
        normal(seed + 1, groups * per_group, share, *sizes, dtype=dtype),
    ]
    attributes: dict[str, Any] = {
        "stride": stride,
        "dilation": dilation,
        "padding": pads,
        "groups": groups,
    }
    if draw(st.booleans()):
        arrays.append(normal(seed + 2, groups * per_group, dtype=dtype))
        attributes["given"] = ("bias",)
    return arrays, attributes, pads


@given(calls(), st.sampled_from([None, 0]), st.sampled_from([18, 23]))
@settings(max_examples=50)
def test_onnx_and_the_loops_agree_with_the_meaning(
    call: Any, batch_axis: int | None, opset: int
) -> None:
    arrays, attributes, pads = call
    # A sum of 81 products of either sign: its error is relative to the terms, not to the sum.
    dtype = DType.of(arrays[0])
    close = {DType.F32: 1e-5, DType.F64: 1e-13, DType.BF16: 1e-5}[dtype]
    (y,) = check("conv", arrays, [batch_axis], opset=opset, absolute=close, **attributes)
    want = convolve(
        *arrays[:2], attributes["stride"], pads, attributes["dilation"], attributes["groups"]
    )
    for bias in arrays[2:]:
        want += bias.astype(np.float64).reshape((-1, *[1] * (want.ndim - 2)))
    relative = {DType.F32: 1e-5, DType.F64: 1e-12, DType.BF16: 2.0**-8}[dtype]
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=relative, atol=close)


@pytest.mark.parametrize("length", [4, 5, 6, 7])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 3)])
def test_same_makes_as_many_places_as_strides_and_pads_the_odd_one_after(
    length: int, stride: int, dilation: int
) -> None:
    x, w = normal(0, 1, 2, length), normal(1, 3, 2, 4)
    options = {"stride": (stride,), "dilation": (dilation,)}
    (y,) = check("conv", [x, w], [0], padding="same", **options)
    places = -(-length // stride)
    assert y.shape == (1, 3, places)
    total = max(0, (places - 1) * stride + 3 * dilation + 1 - length)
    pair = ((total // 2, total - total // 2),)
    np.testing.assert_array_equal(y, check("conv", [x, w], padding=pair, **options)[0])


def test_one_number_pads_every_axis_on_both_sides_and_valid_none() -> None:
    x, w = normal(0, 2, 1, 4, 5), normal(1, 1, 1, 3, 2)
    (y,) = check("conv", [x, w], padding=1)
    np.testing.assert_array_equal(y, check("conv", [x, w], padding=((1, 1), (1, 1)))[0])
    np.testing.assert_array_equal(y, check("conv", [x, w], padding=(1, 1))[0])
    (y,) = check("conv", [x, w], padding="valid")
    assert y.shape == (2, 1, 2, 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_axis_of_no_length_may_be_padded(dtype: Any) -> None:
    w = normal(1, 1, 2, 1, dtype=dtype)
    assert check("conv", [normal(0, 2, 2, 0, dtype=dtype), w], [0], padding=1)[0].shape == (2, 1, 2)


def test_steps_that_are_never_taken_may_be_huge() -> None:
    x, w = normal(0, 1, 1, 3), normal(1, 1, 1, 3)
    (y,) = check("conv", [x, w], stride=(2**62,))
    np.testing.assert_array_equal(y, check("conv", [x, w])[0])
    narrow = w[:, :, :1]
    (y,) = check("conv", [x, narrow], dilation=(2**62,))
    np.testing.assert_array_equal(y, check("conv", [x, narrow])[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_in_bf16_rounds_its_operands_and_not_the_bias(dtype: Any) -> None:
    arrays = [
        normal(i, *shape, dtype=dtype) for i, shape in enumerate([(2, 3, 6), (4, 3, 2), (4,)])
    ]
    (y,) = check("conv", arrays, [0], precision="bf16", given=("bias",))
    if dtype == np.float64:
        rounded = arrays
    else:
        rounded = [a.astype(BF16).astype(np.float32) for a in arrays[:2]] + arrays[2:]
        rounded[2] = rounded[2].astype(np.float32)
    want = check("conv", rounded, given=("bias",))[0].astype(dtype)
    np.testing.assert_array_equal(y, want)


def test_axis_rules() -> None:
    x, w, bias = normal(0, 2, 4, 5), normal(1, 6, 2, 3), normal(2, 6)
    # The batch of x; the first axis of w and the bias, which are channels of the result.
    assert check_axis_rule("conv", [x, w, bias], groups=2, given=("bias",)) == 3
    causal = {"padding": ((2, 0),), "groups": 2}
    assert check_axis_rule("conv", [x, w], **causal) == 3
    assert fate(x, w, axis=2, **causal) == Causal(2)
    dilated = {"padding": ((4, 0),), "dilation": (2,), "groups": 2}
    assert check_axis_rule("conv", [x, w], **dilated) == 3
    assert fate(x, w, axis=2, padding=((2, 0),), stride=(2,), groups=2) == WHOLE
    assert fate(x, w, axis=2, padding=((3, 0),), groups=2) == WHOLE
    assert fate(x, w, axis=2, padding="same", groups=2) == WHOLE
    pointwise = normal(1, 6, 4, 1)
    assert check_axis_rule("conv", [x, pointwise]) == 3
    assert fate(x, pointwise, axis=2) == Apart(2)
    depthwise = normal(1, 4, 1, 3)
    assert check_axis_rule("conv", [x, depthwise], groups=4) == 3
    assert fate(x, depthwise, axis=1, groups=4) == Apart(1)
    assert fate(x, normal(1, 8, 1, 3), axis=1, groups=4) == WHOLE


def test_axis_rules_of_each_spatial_axis_by_itself() -> None:
    x, w = normal(0, 1, 1, 4, 5), normal(1, 1, 1, 1, 3)
    options = {"padding": ((0, 0), (2, 0))}
    assert check_axis_rule("conv", [x, w], **options) == 5
    assert [fate(x, w, axis=axis, **options) for axis in (2, 3)] == [Apart(2), Causal(3)]


def fate(x: Array, w: Array, *, axis: int, **attributes: Any) -> Any:
    _, node = single("conv", [x, w], **attributes)
    (found,) = CONV.axis_rule(0, axis, node.input_types, node.attributes, node.result_types)
    return found


X, W = normal(0, 2, 4, 5), normal(1, 6, 2, 3)


@pytest.mark.parametrize(
    ("arrays", "attributes"),
    [
        ([normal(0, 2, 4), W], {}),  # conv 1
        ([normal(0, 2, 4, 2, 2, 2, 2), normal(0, 2, 4, 1, 1, 1, 1)], {}),  # conv 1
        ([X, normal(1, 6, 2, 3, 1)], {"groups": 2}),  # conv 1
        ([X, W], {}),  # conv 4
        ([X, normal(1, 6, 0, 3)], {}),  # conv 4
        ([X, normal(1, 6, 2, 0)], {"groups": 2}),  # conv 4
        ([X, normal(1, 0, 2, 3)], {"groups": 2}),  # conv 4
        ([X, W, normal(2, 5)], {"groups": 2, "given": ("bias",)}),  # conv 5
        ([X, W, normal(2, 6, 1)], {"groups": 2, "given": ("bias",)}),  # conv 5
        ([X, W], {"groups": 2, "dilation": (3,)}),  # conv 7
    ],
)
def test_shapes_that_do_not_fit(arrays: list[Array], attributes: dict[str, Any]) -> None:
    error_of("E-SHAPE-001", "conv", arrays, **attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"groups": 0},  # conv 3
        {"groups": -2},  # conv 3
        {"groups": 3},  # conv 3
        {"groups": 4},  # conv 3
        {"groups": 2, "stride": (0,)},  # conv 6
        {"groups": 2, "stride": (1, 1)},  # conv 6
        {"groups": 2, "stride": ()},  # conv 6
        {"groups": 2, "dilation": (0,)},  # conv 6
        {"groups": 2, "padding": -1},  # conv 6
        {"groups": 2, "padding": ((1, 1), (1, 1))},  # conv 6
    ],
)
def test_attributes_out_of_range(attributes: dict[str, Any]) -> None:
    error_of("E-VALUE-001", "conv", [X, W], **attributes)


def test_a_padding_that_no_memory_holds() -> None:
    error_of("E-SHAPE-003", "conv", [X, W], groups=2, padding=2**40, stride=(2**40,))


def test_a_kernel_that_cannot_be_sliced_in_f64() -> None:
    """The only call of conv that has no ONNX form: nothing runs it, and as slices it is endless."""
    x, w = np.ones((1, 1, 5000)), np.ones((1, 1, 4097))
    graph, _ = single("conv", [x, w])
    with pytest.raises(SexpgpuError) as caught:
        build_model(graph, {}.__getitem__, BuildOptions())
    assert caught.value.code == "E-ONNX-001"


@pytest.mark.parametrize(  # conv 2
    ("x", "w"),
    [
        ((2, Batch(), 5), (6, 2, 3)),
        ((2, 4, Batch()), (6, 2, 3)),
        ((2, 4, 5), (Batch(), 2, 3)),
        ((2, 4, 5), (6, 2, Batch())),
    ],
)
def test_the_batch_is_the_first_axis_only(x: Any, w: Any) -> None:
    attributes = {a.name: a.default for a in CONV.signature.attributes} | {"groups": 2}
    types = [TensorType(DType.F32, x), TensorType(DType.F32, w)]
    with pytest.raises(SexpgpuError) as caught:
        CONV.infer_checked(types, attributes)
    assert caught.value.code == "E-SHAPE-002"


def test_a_multiple_of_the_batch_passes() -> None:
    attributes = {a.name: a.default for a in CONV.signature.attributes} | {"groups": 2}
    types = [TensorType(DType.F32, (Batch(3), 4, 5)), TensorType(DType.F32, (6, 2, 3))]
    assert CONV.infer_checked(types, attributes)[0].shape == (Batch(3), 6, 3)
