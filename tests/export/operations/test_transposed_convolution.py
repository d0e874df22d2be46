"""conv-transpose: its meaning against plain loops, its ONNX form against its meaning, its rules."""

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
from sexpgpu.export.operations.operation import WHOLE, Apart, Causal, all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import check, check_axis_rule, error_of, single

TRANSPOSED = all_operations()["conv-transpose"]
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), BF16]


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def convolve(x: Array, w: Array, options: dict[str, Any]) -> Array:
    """The definition, element by element, in f64; every option is one for each axis."""
    stride, dilation, pads, more, groups = (
        options[name] for name in ("stride", "dilation", "padding", "output-padding", "groups")
    )
    lengths, sizes, share = x.shape[2:], w.shape[2:], w.shape[1]
    counts = [
        (n - 1) * s - before - after + d * (k - 1) + m + 1
        for n, k, s, d, m, (before, after) in zip(
            lengths, sizes, stride, dilation, more, pads, strict=True
        )
    ]
    y = np.zeros((x.shape[0], groups * share, *counts))
    for b, c in itertools.product(range(x.shape[0]), range(x.shape[1])):
        group = c // (x.shape[1] // groups)
        for i in itertools.product(*map(range, lengths)):
            for o, k in itertools.product(range(share), itertools.product(*map(range, sizes))):
                at = tuple(
                    p * s - before + q * d
                    for p, s, q, d, (before, _) in zip(i, stride, k, dilation, pads, strict=True)
                )
                if all(0 <= j < n for j, n in zip(at, counts, strict=True)):
                    product = float(w[(c, o, *k)]) * float(x[(b, c, *i)])
                    y[(b, group * share + o, *at)] += product
    return y


@st.composite
def calls(draw: Any) -> tuple[list[Array], dict[str, Any]]:
    axes = draw(st.integers(1, 3))
    per_axis = st.tuples(*[st.integers(1, 3)] * axes)
    sizes, stride, dilation, lengths = (draw(per_axis) for _ in range(4))
    more = tuple(draw(st.integers(0, s - 1)) for s in stride)
    rooms = [
        (n - 1) * s + d * (k - 1) + m
        for n, s, d, k, m in zip(lengths, stride, dilation, sizes, more, strict=True)
    ]
    befores = [draw(st.integers(0, min(room, 4))) for room in rooms]
    pads = tuple(
        (before, draw(st.integers(0, min(room - before, 4))))
        for before, room in zip(befores, rooms, strict=True)
    )
    groups, own, share = (draw(st.integers(1, 2)) for _ in range(3))
    dtype, seed = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 1000))
    arrays = [
        normal(seed, draw(st.integers(1, 2)), groups * own, *lengths, dtype=dtype),
        normal(seed + 1, groups * own, share, *sizes, dtype=dtype),
    ]
    attributes: dict[str, Any] = {
        "stride": stride,
        "dilation": dilation,
        "padding": pads,
        "output-padding": more,
        "groups": groups,
    }
    if draw(st.booleans()):
        arrays.append(normal(seed + 2, groups * share, dtype=dtype))
        attributes["given"] = ("bias",)
    return arrays, attributes


@given(calls(), st.sampled_from([None, 0]), st.sampled_from([18, 23]))
@settings(max_examples=50)
def test_onnx_and_the_loops_agree_with_the_meaning(
    call: Any, batch_axis: int | None, opset: int
) -> None:
    arrays, attributes = call
    dtype = DType.of(arrays[0])
    # A sum of products of either sign: its error is relative to the terms, not to the sum.
    close = {DType.F32: 1e-5, DType.F64: 1e-13, DType.BF16: 1e-5}[dtype]
    (y,) = check("conv-transpose", arrays, [batch_axis], opset=opset, absolute=close, **attributes)
    want = convolve(*arrays[:2], attributes)
    for bias in arrays[2:]:
        want += bias.astype(np.float64).reshape((-1, *[1] * (want.ndim - 2)))
    relative = {DType.F32: 1e-5, DType.F64: 1e-12, DType.BF16: 2.0**-8}[dtype]
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=relative, atol=close)


def test_it_is_the_gradient_of_conv() -> None:
    """⟨conv x, y⟩ = ⟨x, conv-transpose y⟩ with the same kernel."""
    x, w = normal(0, 2, 4, 9), normal(1, 6, 2, 3)
    options: dict[str, Any] = {"stride": (2,), "padding": ((1, 2),), "dilation": (2,), "groups": 2}
    (y,) = check("conv", [x, w], **options)
    z = normal(2, *y.shape)
    rest = 9 + 3 - 4 - ((y.shape[2] - 1) * 2 + 1)
    (back,) = check("conv-transpose", [z, w], **options, **{"output-padding": (rest,)})
    assert back.shape == x.shape
    np.testing.assert_allclose((y * z).sum(), (x * back).sum(), rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_that_are_never_taken_may_be_huge(dtype: Any) -> None:
    x, w = normal(0, 2, 1, 1, dtype=dtype), normal(1, 1, 1, 3, dtype=dtype)
    (y,) = check("conv-transpose", [x, w], stride=(2**70,))
    np.testing.assert_array_equal(y, check("conv-transpose", [x, w])[0])
    (y,) = check("conv-transpose", [x, w[:, :, :1]], dilation=(2**70,))
    assert y.shape == (2, 1, 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_but_what_is_added_at_the_end_is_cut_off(dtype: Any) -> None:
    x, w, bias = (normal(i, *s, dtype=dtype) for i, s in enumerate([(1, 1, 1), (1, 1, 1), (1,)]))
    options = {"stride": (5,), "padding": ((2, 0),), "output-padding": (4,), "given": ("bias",)}
    (y,) = check("conv-transpose", [x, w, bias], [0], **options)
    np.testing.assert_array_equal(y, np.broadcast_to(bias, (1, 1, 3)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_in_bf16_rounds_its_operands_and_not_the_bias(dtype: Any) -> None:
    arrays = [
        normal(i, *shape, dtype=dtype) for i, shape in enumerate([(2, 3, 6), (3, 4, 2), (4,)])
    ]
    (y,) = check("conv-transpose", arrays, [0], precision="bf16", given=("bias",))
    rounded = arrays
    if dtype != np.float64:
        rounded = [a.astype(BF16).astype(np.float32) for a in arrays[:2]]
        rounded.append(arrays[2].astype(np.float32))
    want = check("conv-transpose", rounded, given=("bias",))[0].astype(dtype)
    np.testing.assert_array_equal(y, want)


def test_axis_rules() -> None:
    x, w, bias = normal(0, 2, 4, 5), normal(1, 4, 3, 3), normal(2, 3)
    # The batch of x; the second axis of w and the bias, which are channels of the result.
    assert check_axis_rule("conv-transpose", [x, w, bias], given=("bias",)) == 3
    assert check_axis_rule("conv-transpose", [x, w], groups=2) == 1
    causal = {"padding": ((0, 2),)}
    assert check_axis_rule("conv-transpose", [x, w], **causal) == 3
    assert fate(x, w, axis=2, **causal) == Causal(2)
    assert fate(x, w, axis=2, padding=((0, 4),), dilation=(2,)) == Causal(2)
    assert fate(x, w, axis=2, padding=1) == WHOLE
    assert fate(x, w, axis=2, padding=((0, 3),)) == WHOLE
    assert fate(x, w, axis=2, padding=((0, 10),), stride=(3,)) == WHOLE
    pointwise = normal(1, 4, 3, 1)
    assert check_axis_rule("conv-transpose", [x, pointwise]) == 3
    assert fate(x, pointwise, axis=2) == Apart(2)
    depthwise = normal(1, 4, 1, 3)
    assert check_axis_rule("conv-transpose", [x, depthwise], groups=4) == 3
    assert fate(x, depthwise, axis=1, groups=4) == Apart(1)
    assert fate(x, normal(1, 4, 2, 3), axis=1, groups=4) == WHOLE


def fate(x: Array, w: Array, *, axis: int, **attributes: Any) -> Any:
    _, node = single("conv-transpose", [x, w], **attributes)
    (found,) = TRANSPOSED.axis_rule(0, axis, node.input_types, node.attributes, node.result_types)
    return found


X, W = normal(0, 2, 4, 5), normal(1, 4, 3, 3)


@pytest.mark.parametrize(
    ("arrays", "attributes"),
    [
        ([normal(0, 2, 4), W], {}),  # conv-transpose 1
        ([normal(0, 2, 4, 2, 2, 2, 2), normal(0, 4, 4, 1, 1, 1, 1)], {}),  # conv-transpose 1
        ([X, normal(1, 4, 2, 3, 1)], {}),  # conv-transpose 1
        ([normal(0, 2, 4, 0), W], {}),  # conv-transpose 1
        ([X, normal(1, 3, 4, 3)], {}),  # conv-transpose 4
        ([X, normal(1, 4, 0, 3)], {}),  # conv-transpose 4
        ([X, normal(1, 4, 2, 0)], {}),  # conv-transpose 4
        ([X, W, normal(2, 4)], {"given": ("bias",)}),  # conv-transpose 5
        ([X, W, normal(2, 3)], {"groups": 2, "given": ("bias",)}),  # conv-transpose 5
        ([X, W], {"padding": ((3, 4),)}),  # conv-transpose 7
    ],
)
def test_shapes_that_do_not_fit(arrays: list[Array], attributes: dict[str, Any]) -> None:
    error_of("E-SHAPE-001", "conv-transpose", arrays, **attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"groups": 0},  # conv-transpose 3
        {"groups": 3},  # conv-transpose 3
        {"stride": (0,)},  # conv-transpose 6
        {"stride": (1, 1)},  # conv-transpose 6
        {"dilation": (0,)},  # conv-transpose 6
        {"padding": -1},  # conv-transpose 6
        {"padding": ((1, 1), (1, 1))},  # conv-transpose 6
        {"output-padding": (1,)},  # conv-transpose 6
        {"output-padding": (-1,)},  # conv-transpose 6
    ],
)
def test_attributes_out_of_range(attributes: dict[str, Any]) -> None:
    error_of("E-VALUE-001", "conv-transpose", [X, W], **attributes)


def test_a_result_that_no_memory_holds() -> None:
    error_of("E-SHAPE-003", "conv-transpose", [X, W], stride=(2**62,))


def test_a_kernel_that_cannot_be_sliced_in_f64() -> None:
    graph, _ = single("conv-transpose", [np.ones((1, 1, 2)), np.ones((1, 1, 4097))])
    with pytest.raises(SexpgpuError) as caught:
        build_model(graph, {}.__getitem__, BuildOptions())
    assert caught.value.code == "E-ONNX-001"


@pytest.mark.parametrize(  # conv-transpose 2
    ("x", "w"),
    [
        ((2, Batch(), 5), (4, 3, 3)),
        ((2, 4, Batch()), (4, 3, 3)),
        ((2, 4, 5), (Batch(), 3, 3)),
        ((2, 4, 5), (4, 3, Batch())),
    ],
)
def test_the_batch_is_the_first_axis_only(x: Any, w: Any) -> None:
    attributes = {a.name: a.default for a in TRANSPOSED.signature.attributes}
    with pytest.raises(SexpgpuError) as caught:
        TRANSPOSED.infer_checked([TensorType(DType.F32, x), TensorType(DType.F32, w)], attributes)
    assert caught.value.code == "E-SHAPE-002"
