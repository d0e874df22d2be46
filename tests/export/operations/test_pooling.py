"""max-pool and average-pool: against plain loops, ONNX Runtime, and their rules."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Node, Value, make_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.operations.operation import WHOLE, Apart, Causal, all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import (
    check,
    check_axis_rule,
    check_graph,
    error_of,
    lowered_operators,
    single,
    tensor_type,
)

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float32), np.dtype(np.float64), BF16]
NUMBERS = [*FLOATS, np.dtype(np.int32), np.dtype(np.int64)]


def numbers(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * 10).astype(dtype)


def pool(x: Array, attributes: dict[str, Any], kind: str) -> Array:
    """The definition, window by window; `padding` is a tuple of pairs."""
    axes = x.ndim - 2
    size, pads = attributes["size"], attributes["padding"]
    stride = attributes["stride"] or size
    starts = []
    for axis in range(axes):
        n, (before, after) = x.shape[2 + axis], pads[axis]
        last = n + after - size[axis]
        found = list(range(-before, last + 1, stride[axis]))
        following = -before + len(found) * stride[axis]
        if attributes["ceil"] and found[-1] < last and following < n:
            found.append(following)
        starts.append(found)
    y = np.zeros((*x.shape[:2], *map(len, starts)), x.dtype)
    for place in itertools.product(*[range(len(found)) for found in starts]):
        begin = [starts[axis][i] for axis, i in enumerate(place)]
        inside = tuple(
            slice(max(0, b), min(b + k, n))
            for b, k, n in zip(begin, size, x.shape[2:], strict=True)
        )
        covered = x[(slice(None), slice(None), *inside)]
        where = tuple(range(2, x.ndim))
        if kind == "max":
            value = covered.max(axis=where)
        else:
            count = 1
            for axis, b in enumerate(begin):
                before, after = pads[axis] if attributes["count-include-pad"] else (0, 0)
                count *= min(b + size[axis], x.shape[2 + axis] + after) - max(b, -before)
            value = (covered.astype(np.float64).sum(axis=where) / count).astype(x.dtype)
        y[(slice(None), slice(None), *place)] = value
    return y


@st.composite
def calls(draw: Any, dtypes: list[Any]) -> tuple[Array, dict[str, Any]]:
    axes = draw(st.integers(1, 3))
    size = draw(st.lists(st.integers(1, 4), min_size=axes, max_size=axes).map(tuple))
    pads = tuple((draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) for k in size)
    stride = draw(st.none() | st.lists(st.integers(1, 5), min_size=axes, max_size=axes).map(tuple))
    lengths = [
        draw(st.integers(max(1, k - sum(pair)), k + 5)) for k, pair in zip(size, pads, strict=True)
    ]
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *lengths)
    x = numbers(draw(st.integers(0, 999)), *shape, dtype=draw(st.sampled_from(dtypes)))
    ceil = draw(st.booleans())
    return x, {"size": size, "padding": pads, "stride": stride, "ceil": ceil}


@given(calls(NUMBERS), st.sampled_from([None, 0]), st.sampled_from([18, 23]))
@settings(max_examples=50)
def test_max_pool(call: Any, batch_axis: int | None, opset: int) -> None:
    x, attributes = call
    (y,) = check("max-pool", [x], [batch_axis], opset=opset, **attributes)
    np.testing.assert_array_equal(y, pool(x, attributes, "max"))


@given(calls(FLOATS), st.booleans(), st.sampled_from([None, 0]), st.sampled_from([18, 23]))
@settings(max_examples=50)
def test_average_pool(call: Any, include: bool, batch_axis: int | None, opset: int) -> None:
    x, attributes = call
    attributes["count-include-pad"] = include
    (y,) = check("average-pool", [x], [batch_axis], opset=opset, absolute=1e-5, **attributes)
    relative = {DType.F32: 1e-5, DType.F64: 1e-12, DType.BF16: 2.0**-8}[DType.of(x)]
    want = pool(x, attributes, "average")
    np.testing.assert_allclose(
        y.astype(np.float64), want.astype(np.float64), rtol=relative, atol=1e-5
    )


@pytest.mark.parametrize("size", [9, 13, 16, 31])
@pytest.mark.parametrize("stride", [1, 3])
def test_large_windows_are_put_together_from_halves(size: int, stride: int) -> None:
    x = numbers(0, 1, 2, 40, dtype=np.float64)
    attributes = {"size": (size,), "stride": (stride,), "padding": ((3, 8),), "ceil": True}
    (y,) = check("max-pool", [x], **attributes)
    np.testing.assert_array_equal(y, pool(x, attributes, "max"))
    attributes["count-include-pad"] = True
    (y,) = check("average-pool", [x], **attributes)
    np.testing.assert_allclose(y, pool(x, attributes, "average"), rtol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["max-pool", "average-pool"])
def test_what_is_not_finite(name: str, dtype: Any) -> None:
    x = numbers(0, 1, 1, 3, 12, dtype=dtype)
    x[0, 0, 1, 2] = np.nan
    x[0, 0, :2, 6:] = -np.inf
    x[0, 0, 2, 11] = np.inf
    (y,) = check(name, [x], size=(2,), stride=(1,), padding=1)
    assert np.isnan(y.astype(np.float32)[0, 0, 1:3, 2:4]).all()
    assert np.isneginf(y.astype(np.float32)[0, 0, 0, 7:]).all()


def pooled(activation: str, attributes: dict[str, Any], x: Array) -> Graph:
    """The largest of windows over what an activation gives."""
    value = Value(tensor_type(x, 0), name="x")
    nodes: list[Node] = []
    for name, given_attributes in ((activation, {}), ("max-pool", attributes)):
        operation = all_operations()[name]
        full = {a.name: a.default for a in operation.signature.attributes} | given_attributes
        nodes.append(make_node(operation, nodes[-1].results if nodes else [value], full))
    return Graph([value], {}, nodes, {"y": nodes[-1].results[0]})


BOUNDED = [n for n, operation in all_operations().items() if operation.bounded_below]


@given(
    st.sampled_from(BOUNDED),
    calls([np.dtype(np.float32), BF16]),
    st.floats(0, 1),
    st.sampled_from([18, 23]),
)
@settings(max_examples=50)
def test_max_pool_after_an_activation(activation: str, call: Any, share: float, opset: int) -> None:
    """NaN and infinities among numbers, up to nothing else."""
    x, attributes = call
    generator = np.random.default_rng(0)
    extremes = generator.choice([np.nan, np.inf, -np.inf, 3e38, -3e38], x.shape).astype(x.dtype)
    x = np.where(generator.random(x.shape) < share, extremes, x)
    check_graph(pooled(activation, attributes, x), {"x": x}, {}, opset=opset)


def test_what_max_pool_becomes() -> None:
    x = numbers(0, 1, 2, 9, 9)
    attributes = {"size": (3,), "stride": (2,), "padding": 1}
    after = ["MaxPool", "AveragePool", "IsNaN", "Where"]
    assert lowered_operators(pooled("leaky-relu", attributes, x))[-4:] != after
    assert lowered_operators(pooled("gelu", attributes, x))[-4:] == after
    summed = ["MaxPool", "Conv", "Relu", "Add"]
    assert lowered_operators(pooled("relu", attributes, x)) == ["Relu", *summed]
    many = np.zeros((1, 2000, 3, 3), np.float32)
    assert lowered_operators(pooled("relu", attributes, many)) == ["Relu", *after]
    assert "MaxPool" not in lowered_operators(pooled("exp", attributes, x))
    assert "MaxPool" not in lowered_operators(pooled("relu", attributes, x.astype(np.float64)))
    large = {"size": (9,), "stride": (1,), "padding": 4}
    assert "MaxPool" not in lowered_operators(pooled("relu", large, x))


def test_what_is_bounded_below() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, -5.0, -0.5, 0.0, 0.5], np.float32)
    for name in BOUNDED:
        (y,) = check(name, [x])
        assert not np.isneginf(y).any(), name
        if all_operations()[name].never_negative:
            assert not (y < 0).any(), name
    assert {name for name in BOUNDED if all_operations()[name].never_negative} == {
        "relu",
        "sigmoid",
    }
    assert {"relu", "sigmoid", "silu", "gelu", "hard-swish"} <= set(BOUNDED)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_least_whole_number_is_kept(dtype: Any) -> None:
    x = np.full((1, 1, 4), np.iinfo(dtype).min, dtype)
    (y,) = check("max-pool", [x], size=(2,), stride=(1,), padding=1)
    np.testing.assert_array_equal(y, np.full((1, 1, 5), np.iinfo(dtype).min))


def test_words_and_single_numbers_of_padding() -> None:
    x = numbers(0, 1, 1, 5, 6)
    for name in ("max-pool", "average-pool"):
        (y,) = check(name, [x], size=(3,), stride=(2,), padding="same")
        assert y.shape == (1, 1, 3, 3)
        # Lengths 5 and 6 lack 2 and 1: the odd one stands after.
        pairs = ((1, 1), (0, 1))
        np.testing.assert_array_equal(y, check(name, [x], size=(3,), stride=(2,), padding=pairs)[0])
        (y,) = check(name, [x], size=(3,), padding="valid")
        assert y.shape == (1, 1, 1, 2)
        (y,) = check(name, [x], size=(3, 2), padding=1)
        one = check(name, [x], size=(3, 2), stride=(3, 2), padding=((1, 1), (1, 1)))[0]
        np.testing.assert_array_equal(y, one)


def test_axis_rules() -> None:
    x = numbers(0, 2, 3, 5, 4)
    for name in ("max-pool", "average-pool"):
        assert check_axis_rule(name, [x], size=(2,)) == 2
        causal = {"size": (3, 1), "stride": (1,), "padding": ((2, 0), (0, 0))}
        assert check_axis_rule(name, [x], **causal) == 4
        assert fates(name, x, **causal) == [Apart(0), Apart(1), Causal(2), Apart(3)]
        strided = {"size": (1,), "stride": (2, 1)}
        assert check_axis_rule(name, [x], **strided) == 3
        assert fates(name, x, **strided) == [Apart(0), Apart(1), WHOLE, Apart(3)]


def fates(name: str, x: Array, **attributes: Any) -> list[Any]:
    _, node = single(name, [x], **attributes)
    rule = node.operation.axis_rule
    arguments = (node.input_types, node.attributes, node.result_types)
    return [rule(0, axis, *arguments)[0] for axis in range(x.ndim)]


@pytest.mark.parametrize("name", ["max-pool", "average-pool"])
@pytest.mark.parametrize(
    ("code", "shape", "attributes"),
    [
        ("E-SHAPE-001", (2, 3), {"size": (1,)}),  # pool 1
        ("E-SHAPE-001", (2, 3, 1, 1, 1, 1), {"size": (1,)}),  # pool 1
        ("E-VALUE-001", (2, 3, 4), {"size": (0,)}),  # pool 3
        ("E-VALUE-001", (2, 3, 4), {"size": (2, 2)}),  # pool 3
        ("E-VALUE-001", (2, 3, 4), {"size": (2,), "stride": (0,)}),  # pool 3
        ("E-VALUE-001", (2, 3, 4), {"size": (2,), "padding": -1}),  # pool 4
        ("E-VALUE-001", (2, 3, 4), {"size": (2,), "padding": 2}),  # pool 4
        ("E-VALUE-001", (2, 3, 4), {"size": (2,), "padding": ((0, 2),)}),  # pool 4
        ("E-SHAPE-001", (2, 3, 4), {"size": (5,)}),  # pool 5
        ("E-SHAPE-001", (2, 3, 0), {"size": (1,)}),  # pool 5
        ("E-SHAPE-003", (2, 3, 4), {"size": (2**40,), "padding": "same"}),
        ("E-SHAPE-003", (2, 3, 4), {"size": (2**40,), "padding": 2**39}),
    ],
)
def test_constraints(name: str, code: str, shape: Any, attributes: dict[str, Any]) -> None:
    error_of(code, name, [numbers(0, *shape)], **attributes)


@pytest.mark.parametrize("name", ["max-pool", "average-pool"])
@pytest.mark.parametrize("shape", [(2, Batch(), 5), (2, 3, Batch())])
def test_the_batch_is_the_first_axis_only(name: str, shape: Any) -> None:  # pool 2
    operation = all_operations()[name]
    attributes = {a.name: a.default for a in operation.signature.attributes} | {"size": (1,)}
    with pytest.raises(SexpgpuError) as caught:
        operation.infer_checked([TensorType(DType.F32, shape)], attributes)
    assert caught.value.code == "E-SHAPE-002"


def test_average_pool_has_no_meaning_for_whole_numbers() -> None:
    error_of("E-DTYPE-002", "average-pool", [numbers(0, 1, 1, 4, dtype=np.int32)], size=(2,))
