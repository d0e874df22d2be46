"""resize: against interpolation written out point by point, ONNX Runtime, and its rules."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.operations.operation import Apart, Rows, all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import check, check_axis_rule, error_of, lowered_operators, single

RESIZE = all_operations()["resize"]
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float32), np.dtype(np.float64), BF16]
ALL = [*FLOATS, np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.bool_)]
TOLERANCE = {DType.F32: 1e-5, DType.F64: 1e-12, DType.BF16: 2.0**-7}


def numbers(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * 4).astype(dtype)


def kernel(d: float) -> float:
    """Keys' cubic kernel with a = -3/4, as the paper has it."""
    a, d = -0.75, abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def line(x: list[float], size: int, mode: str, align_corners: bool) -> list[float]:
    """One axis resized, position by position, in Python's numbers."""
    n, found = len(x), []
    for i in range(size):
        if mode == "nearest":
            found.append(x[math.floor(i * n / size + 1e-9)])
            continue
        if align_corners:
            at = i * (n - 1) / (size - 1) if size > 1 else 0.0
        else:
            at = (i + 0.5) * n / size - 0.5
        around = range(math.floor(at) - 1, math.floor(at) + 3)
        weigh = kernel if mode == "cubic" else lambda d: max(0.0, 1 - abs(d))
        found.append(sum(weigh(at - j) * x[min(max(j, 0), n - 1)] for j in around))
    return found


def resize(x: Array, size: tuple[int, ...], mode: str, align_corners: bool) -> Array:
    for i, new in enumerate(size):
        axis = x.ndim - len(size) + i
        if x.shape[axis] != new:
            x = np.apply_along_axis(
                lambda row, new=new: np.array(line(list(row), new, mode, align_corners)), axis, x
            )
    return x


@st.composite
def calls(draw: Any) -> tuple[Array, dict[str, Any]]:
    rank = draw(st.integers(1, 5))
    axes = draw(st.integers(1, rank))
    shape = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    # Twice and half as often as anything: runtimes have a form of their own for them.
    size = tuple(
        draw(st.sampled_from([2 * n, max(1, n // 2), n]) | st.integers(1, 9))
        for n in shape[rank - axes :]
    )
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    dtype = draw(st.sampled_from(ALL if mode == "nearest" else FLOATS))
    align_corners = mode != "nearest" and draw(st.booleans())
    x = numbers(draw(st.integers(0, 999)), *shape, dtype=dtype)
    return x, {"size": size, "mode": mode, "align-corners": align_corners}


@given(calls(), st.booleans(), st.sampled_from([18, 23]))
@settings(max_examples=50)
def test_onnx_and_interpolation_by_hand_agree_with_the_meaning(
    call: Any, batch: bool, opset: int
) -> None:
    x, attributes = call
    batch_axis = 0 if batch and x.ndim > len(attributes["size"]) else None
    (y,) = check("resize", [x], [batch_axis], opset=opset, **attributes)
    want = resize(x.astype(np.float64), *attributes.values())
    if attributes["mode"] == "nearest":
        np.testing.assert_array_equal(y.astype(np.float64), want)
    else:
        tolerance = TOLERANCE[DType.of(x)]
        np.testing.assert_allclose(y.astype(np.float64), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_nearest_is_exact_at_every_scale(length: int) -> None:
    x = np.arange(length, dtype=np.int64)
    for size in (1, 3, 10, 49, 147, 300):
        (y,) = check("resize", [x], size=(size,), mode="nearest")
        np.testing.assert_array_equal(y, [i * length // size for i in range(size)])


@pytest.mark.parametrize(
    ("mode", "length", "size"),
    [("nearest", 4, 8), ("nearest", 4, 12), ("linear", 4, 8), ("linear", 8, 2)],
)
def test_scales_without_doubt_are_left_to_the_runtime(mode: str, length: int, size: int) -> None:
    x = numbers(0, 1, 2, length, length)
    graph, _ = single("resize", [x], [0], size=(size, size), mode=mode)
    assert lowered_operators(graph) == ["Resize"]
    check("resize", [x], [0], size=(size, size), mode=mode)
    check("resize", [x[0]], size=(size,), mode=mode)


@pytest.mark.parametrize(
    ("mode", "length", "size"), [("nearest", 4, 6), ("linear", 4, 12), ("cubic", 4, 8)]
)
def test_other_scales_are_gathered(mode: str, length: int, size: int) -> None:
    graph, _ = single("resize", [numbers(0, 1, 2, length)], [0], size=(size,), mode=mode)
    assert set(lowered_operators(graph)) <= {"Gather", "Mul", "Sum"}


@pytest.mark.parametrize(("shape", "size"), [((3, 4, 8), (16,)), ((3, 2, 4, 8), (4, 16))])
def test_what_is_not_finite_stays_in_its_row(shape: tuple[int, ...], size: Any) -> None:
    x = numbers(0, *shape)
    x[1, 1] = np.nan
    (y,) = check("resize", [x], [0], size=size)
    assert np.isnan(y[1, 1]).all()
    assert np.isfinite(y[[0, 2]]).all()
    assert np.isfinite(y[1, 0]).all()
    x[1, 1, 1:] = 1
    check("resize", [x], [0], size=size)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_what_is_not_finite_stays_near(mode: str, dtype: Any) -> None:
    x = numbers(0, 1, 1, 9, dtype=dtype)
    x[0, 0, 0], x[0, 0, 8] = np.nan, np.inf
    for size in (18, 12):
        (y,) = check("resize", [x], size=(size,), mode=mode)
        assert np.isfinite(y.astype(np.float32)[0, 0, size // 2])
        assert np.isnan(y.astype(np.float32)[0, 0, 0])


def test_an_axis_that_keeps_its_length_is_left_as_it_is() -> None:
    x = np.array([[[np.inf, 1, np.nan, -np.inf]]], np.float32)
    for mode in ("nearest", "linear", "cubic"):
        np.testing.assert_array_equal(check("resize", [x], size=(4,), mode=mode)[0], x)


def test_axis_rules() -> None:
    x = numbers(0, 2, 3, 4, 5)
    assert check_axis_rule("resize", [x], size=(8, 5)) == 3
    assert check_axis_rule("resize", [x], size=(7,), mode="cubic") == 3
    _, node = single("resize", [x], size=(8, 5))
    fates = [
        RESIZE.axis_rule(0, axis, node.input_types, node.attributes, node.result_types)[0]
        for axis in range(4)
    ]
    assert fates[:2] == [Apart(0), Apart(1)]
    assert fates[3] == Apart(3)


@pytest.mark.parametrize(("axis", "size"), [(3, (8, 1)), (1, (8, 5))])
def test_fewer_positions_of_a_kept_axis(axis: int, size: tuple[int, ...]) -> None:
    _, node = single("resize", [numbers(0, 2, 3, 4, 5)], size=(8, 5))
    rows = Rows(node.inputs, (axis,), node.results[0].type, axis, 1, node.inputs[0], causal=False)
    restricted = RESIZE.restrict(rows, node.attributes)
    assert restricted is not None
    assert restricted[1]["size"] == size


X = numbers(0, 2, 3, 4)


@pytest.mark.parametrize(
    ("code", "x", "attributes"),
    [
        ("E-SHAPE-001", X, {"size": ()}),  # resize 1
        ("E-SHAPE-001", X, {"size": (1, 1, 1, 1)}),  # resize 1
        ("E-SHAPE-001", np.array(1, np.float32), {"size": (1,)}),  # resize 1
        ("E-VALUE-001", X, {"size": (0,)}),  # resize 2
        ("E-VALUE-001", X, {"size": (-1,)}),  # resize 2
        ("E-SHAPE-001", X[:, :, :0], {"size": (3,)}),  # resize 3
        ("E-DTYPE-002", X.astype(np.int32), {"size": (3,)}),  # resize 4
        ("E-DTYPE-002", X > 0, {"size": (3,), "mode": "cubic"}),  # resize 4
        ("E-VALUE-001", X, {"size": (3,), "mode": "nearest", "align-corners": True}),  # resize 5
        ("E-SHAPE-003", X, {"size": (2**40,)}),
    ],
)
def test_constraints(code: str, x: Array, attributes: dict[str, Any]) -> None:
    error_of(code, "resize", [x], **attributes)


def test_the_batch_is_not_resized() -> None:  # resize 3
    attributes = {a.name: a.default for a in RESIZE.signature.attributes} | {"size": (3,)}
    with pytest.raises(SexpgpuError) as caught:
        RESIZE.infer_checked([TensorType(DType.F32, (2, Batch()))], attributes)
    assert caught.value.code == "E-SHAPE-002"
