"""attention: meaning, ONNX form in both profiles, rules, errors, and the rows of --at."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.export.operations.operation import Rows, all_operations
from sexpgpu.export.passes.at import gather_at
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import (
    assert_close,
    check,
    check_axis_rule,
    error_of,
    lowered_operators,
    run_onnx,
    single,
)

FLOATS = [DType.F32, DType.F64, DType.BF16]

#: Scores are sums of up to 5 products of numbers up to 2; the softmax turns their absolute error
#: into a relative one, and sums of values up to 2 may cancel.
ABSOLUTE = {DType.F32: 2e-5, DType.F64: 1e-12, DType.BF16: 2e-2}


def values(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    generator = np.random.default_rng([seed, *shape])
    return generator.uniform(-2, 2, shape).astype(dtype.numpy)


def attend(
    q: Array, k: Array, v: Array, seen: Array, scale: float, bias: Array, cap: float | None
) -> Array:
    """Attention by loops, in f64: [batch, heads, time, width]; seen and bias are of full shape."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    result = np.zeros((*q.shape[:3], v.shape[3]))
    group = q.shape[1] // max(k.shape[1], 1)
    for n, h, i in np.ndindex(q.shape[:3]):
        weights = {}
        for j in range(k.shape[2]):
            score = float(q[n, h, i] @ k[n, h // group, j]) * scale
            score = score if cap is None else cap * math.tanh(score / cap)
            if seen[n, h, i, j]:
                weights[j] = math.exp(score + bias[n, h, i, j])
        for j, weight in weights.items():
            result[n, h, i] += weight / sum(weights.values()) * v[n, h // group, j]
    return result


def places(
    queries: int, keys: int, attributes: dict[str, Any], positions: Array | None, batch: int
) -> Array:
    """Which places see which keys, by loops: [batch, queries, keys]."""
    seen = np.ones((batch, queries, keys), bool)
    window = attributes.get("window")
    for n, i, j in np.ndindex(seen.shape):
        place = keys - queries + i
        if positions is not None:
            place = positions[i] if positions.ndim == 1 else positions[n, ..., i].item()
        place += attributes.get("offset", 0)
        if attributes.get("causal") or window is not None:
            seen[n, i, j] = j <= place and (window is None or j > place - window)
    return seen


@st.composite
def attentions(draw: st.DrawFn) -> tuple[list[Array], list[int | None], dict[str, Any]]:
    """The tensors, the axes along which the batch runs, and the attributes."""
    dtype = draw(st.sampled_from(FLOATS))
    size = st.integers(1, 4)
    batch, queries, keys, width, width_of_values = (draw(size) for _ in range(5))
    heads = draw(st.integers(1, 2))
    group = draw(st.integers(1, 3))
    lead = [(batch, heads * group), (batch, heads), (batch, heads)]
    if draw(st.integers(0, 3)) == 0:
        lead = [(batch,)] * 3
    if draw(st.integers(0, 9)) == 0:
        keys = 0
    tensors = [
        values((*lead[0], queries, width), dtype, 0),
        values((*lead[1], keys, width), dtype, 1),
        values((*lead[2], keys, width_of_values), dtype, 2),
    ]
    axes: list[int | None] = [0, 0, 0]
    attributes: dict[str, Any] = {"given": ()}
    scores = (*lead[0], queries, keys)
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    for name in ("mask", "bias"):
        if draw(st.booleans()):
            cut = draw(st.integers(0, len(scores) - 1))
            shape = tuple(d if draw(st.booleans()) else 1 for d in scores[cut:])
            if name == "mask":
                tensors.append(generator.random(shape) < 0.6)
            else:
                bias = values(shape, dtype, 3)
                tensors.append(
                    np.where(generator.random(shape) < 0.2, -np.inf, bias).astype(bias.dtype)
                )
            axes.append(0 if cut == 0 and shape[0] == batch != 1 else None)
            attributes["given"] += (name,)
    if draw(st.booleans()):
        kind = draw(st.sampled_from([np.int32, np.int64]))
        shape = draw(st.sampled_from([(queries,), (batch, queries), (batch, 1, 1, queries)]))
        tensors.append(generator.integers(-2, keys + 2, shape).astype(kind))
        axes.append(0 if len(shape) > 1 else None)
        attributes["given"] += ("positions",)
    attributes["causal"] = draw(st.booleans())
    attributes["window"] = draw(st.none() | st.integers(1, 4))
    attributes["offset"] = draw(st.integers(-2, 5))
    attributes["scale"] = draw(st.none() | st.floats(-1, 1))
    attributes["softcap"] = draw(st.none() | st.floats(0.5, 5))
    if any(
        axis is None and a.ndim == len(scores) and a.shape[0] == batch != 1
        for axis, a in zip(axes, tensors, strict=True)
    ):
        axes = [None] * len(axes)
    return tensors, axes, attributes


@given(attentions(), st.sampled_from([("portable", 18), ("portable", 23), ("fused", 23)]))
def test_attention(
    case: tuple[list[Array], list[int | None], dict[str, Any]], target: tuple[Profile, int]
) -> None:
    tensors, axes, attributes = case
    profile, opset = target
    absolute = ABSOLUTE[DType.of(tensors[0])]
    (found,) = check(
        "attention", tensors, axes, absolute=absolute, profile=profile, opset=opset, **attributes
    )
    q, k, v, *rest = tensors
    optional = dict(zip(attributes["given"], rest, strict=True))
    if q.ndim == 3:
        q, k, v = (array[:, None] for array in (q, k, v))
        for name in ("mask", "bias"):
            if name in optional and optional[name].ndim == 3:
                optional[name] = optional[name][:, None]
    full = (*q.shape[:3], k.shape[2])
    seen = places(q.shape[2], k.shape[2], attributes, optional.get("positions"), len(q))[:, None]
    seen = np.broadcast_to(seen, full) & np.broadcast_to(optional.get("mask", True), full)
    bias = np.broadcast_to(optional.get("bias", np.zeros(1)), full).astype(np.float64)
    scale = attributes["scale"]
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    want = attend(q, k, v, seen & (bias != -np.inf), scale, bias, attributes["softcap"])
    assert_close(found, want.reshape(found.shape).astype(found.dtype), absolute=absolute)


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    q = values((1, 2, 3, 4), DType.F32)
    mask = np.array([[True], [False], [True]]) & np.ones((3, 3), bool)
    for profile, opset in (("portable", 18), ("fused", 23)):
        (found,) = check(
            "attention", [q, q, q, mask], given=("mask",), profile=profile, opset=opset
        )
        assert not found[:, :, 1].any()
        assert found[:, :, [0, 2]].all()


def test_what_is_not_seen_may_be_anything() -> None:
    q = values((1, 1, 3, 4), DType.F32)
    k = q.copy()
    k[0, 0, 2] = np.nan
    (found,) = check("attention", [q, k, q], causal=True)
    assert np.isnan(found).any(axis=-1).tolist() == [[[False, False, True]]]


@pytest.mark.parametrize(
    ("attributes", "claims"),
    [
        # q: batch, heads, queries; k: batch, heads; v: batch, heads, width of values.
        ({}, 8),
        # And the keys of k and v.
        ({"causal": True}, 10),
        ({"window": 2}, 10),
        ({"causal": True, "offset": -1}, 10),
        ({"causal": True, "offset": 1}, 8),
    ],
)
def test_axes(attributes: dict[str, Any], claims: int) -> None:
    tensors = [values((2, 3, 4, 2), DType.F32, seed) for seed in range(3)]
    assert check_axis_rule("attention", tensors, **attributes) == claims


def test_axes_of_groups_and_of_what_is_optional() -> None:
    q, k = values((2, 4, 3, 2), DType.F32), values((2, 2, 3, 2), DType.F32)
    assert check_axis_rule("attention", [q, k, k], causal=True) == 8
    q = values((2, 3, 4), DType.F32)
    assert check_axis_rule("attention", [q, q, q], causal=True) == 7
    mask = np.random.default_rng(0).random((2, 3, 3)) < 0.5
    assert check_axis_rule("attention", [q, q, q, mask], given=("mask",), causal=True) == 10
    assert check_axis_rule("attention", [q, q, q, mask[0]], given=("mask",)) == 6
    assert check_axis_rule("attention", [q, q, q, mask[:, :, :1]], given=("mask",)) == 7
    bias = np.where(mask, 0, 1).astype(np.float32)
    assert check_axis_rule("attention", [q, q, q, bias], given=("bias",)) == 7
    positions = np.array([[0, 2, 1], [1, 1, 0]])
    assert (
        check_axis_rule("attention", [q, q, q, positions], given=("positions",), causal=True) == 7
    )


def test_bf16_precision_rounds_what_is_multiplied() -> None:
    q, k, v = (values((2, 2, 6, 8), DType.F32, seed) for seed in range(3))
    # A probability that lies between two bf16 may fall to either side: 2^-9 of values up to 2.
    (found,) = check("attention", [q, k, v], precision="bf16", absolute=4e-3)
    q, k, v = (array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in (q, k, v))
    e = np.exp(q @ k.swapaxes(-1, -2) / math.sqrt(8))
    p = (e / e.sum(-1, keepdims=True)).astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_allclose(found, p @ v, atol=4e-3)
    graph, _ = single("attention", [values((1, 1, 2, 2), DType.F32)] * 3, precision="bf16")
    assert lowered_operators(graph).count("Cast") == 8
    assert lowered_operators(graph, native_bf16=True).count("Cast") == 6


def test_operators() -> None:
    q = values((1, 2, 3, 4), DType.F32)
    graph, _ = single("attention", [q, q, q], causal=True)
    assert lowered_operators(graph, opset=23, profile="fused") == ["Attention"]
    portable = lowered_operators(graph)
    assert sorted(portable) == [
        "LessOrEqual",
        "MatMul",
        "MatMul",
        "Mul",
        "Softmax",
        "Transpose",
        "Where",
    ]
    capped, _ = single("attention", [q, q, q], softcap=2.0)
    assert "Attention" not in lowered_operators(capped, opset=23, profile="fused")


def test_layers_share_one_triangle() -> None:
    operation = all_operations()["attention"]
    x = Value(TensorType(DType.F32, (Batch(), 2, 5, 4)), name="x")
    _, node = single("attention", [values((1, 2, 5, 4), DType.F32)] * 3, causal=True)
    first = make_node(operation, [x, x, x], node.attributes)
    value = first.results[0]
    second = make_node(operation, [value, value, value], node.attributes)
    graph = Graph([x], {}, [first, second], {"y": second.results[0]})
    assert lowered_operators(graph).count("LessOrEqual") == 1


def test_errors() -> None:
    q, k = values((2, 4, 3, 2), DType.F32), values((2, 2, 3, 2), DType.F32)
    error_of("E-SHAPE-001", "attention", [q[0, 0]] * 3)  # attention 1
    error_of("E-SHAPE-001", "attention", [q, k[0], k])  # attention 1
    error_of("E-SHAPE-001", "attention", [q, k[:1], k[:1]])  # attention 2
    error_of("E-SHAPE-001", "attention", [q, k, k[:, :, :2]])  # attention 3
    error_of("E-SHAPE-001", "attention", [q[:, :3], k, k])  # attention 3
    error_of("E-SHAPE-001", "attention", [q, k[:, :0], k[:, :0]])  # attention 3
    error_of("E-SHAPE-001", "attention", [q, k[..., :1], k])  # attention 4
    error_of("E-SHAPE-001", "attention", [q[..., :0], k[..., :0], k])  # attention 4
    for axis in (1, 2, 3):
        with pytest.raises(SexpgpuError) as caught:  # attention 5
            single("attention", [k, k, k], [axis, axis, axis])
        assert caught.value.code == "E-SHAPE-002"
    mask = np.ones((2, 2, 3, 3), bool)
    for wrong in (mask, mask[None], mask[0, 0, :2], np.array(True)):
        error_of("E-SHAPE-001", "attention", [q, k, k, wrong], given=("mask",))  # attention 6
    for shape in ((), (2,), (3, 3), (2, 2, 3)):
        positions = np.zeros(shape, np.int32)
        error_of(  # attention 7
            "E-SHAPE-001", "attention", [q, k, k, positions], given=("positions",)
        )
    error_of("E-VALUE-001", "attention", [q, k, k], window=0)  # attention 8
    error_of("E-VALUE-001", "attention", [q, k, k], window=2**31)  # attention 8
    error_of("E-VALUE-001", "attention", [q, k, k], offset=-(2**31))  # attention 8
    error_of("E-VALUE-001", "attention", [q, k, k], scale=math.nan)  # attention 9
    error_of("E-VALUE-001", "attention", [q, k, k], softcap=0.0)  # attention 9


# The rows of --at.


def layer(kind: str, heads: tuple[int, int], attributes: dict[str, Any]) -> Graph:
    """x through attention with rotary positions: [batch, 16, 24] to the same."""
    operations = all_operations()
    nodes, weights = [], {}

    def add(name: str, *inputs: Value, **given: Any) -> Value:
        full = {a.name: given.pop(a.name, a.default) for a in operations[name].signature.attributes}
        assert not given
        nodes.append(make_node(operations[name], inputs, full))
        return nodes[-1].results[0]

    def project(x: Value, path: str, rows: int, columns: int) -> Value:
        weights[path] = Value(TensorType(DType.F32, (rows, columns)), name=path)
        return add("matmul", x, weights[path])

    def split(x: Value, count: int) -> Value:
        parts = add("reshape", x, shape=(Batch(), 16, count, 8))
        return add("permute", parts, axes=(0, 2, 1, 3))

    x = Value(TensorType(DType.F32, (Batch(), 16, 24)), name="x")
    q = add("rotary", split(project(x, "q", 24, 8 * heads[0]), heads[0]))
    k = add("rotary", split(project(x, "k", 24, 8 * heads[1]), heads[1]))
    v = split(project(x, "v", 24, 8 * heads[1]), heads[1])
    optional: list[Value] = []
    if kind == "mask":
        mask = np.random.default_rng(1).random((16, 16)) < 0.7
        optional = [add("constant", value=mask)]
        attributes = {**attributes, "given": ("mask",)}
    made = add("attention", q, k, v, *optional, **attributes)
    merged = add(
        "reshape", add("permute", made, axes=(0, 2, 1, 3)), shape=(Batch(), 16, 8 * heads[0])
    )
    y = add("+", x, project(merged, "o", 8 * heads[0], 24))
    return Graph([x], weights, nodes, {"y": y})


@pytest.mark.parametrize("profile", ["portable", "fused"])
@pytest.mark.parametrize("heads", [(3, 3), (4, 2), (4, 1)])
@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("plain", {}),
        ("plain", {"causal": True}),
        ("plain", {"window": 5, "softcap": 3.0}),
        ("plain", {"causal": True, "precision": "bf16"}),
        ("mask", {"causal": True}),
    ],
)
def test_a_row_has_the_bits_of_the_window(
    kind: str, attributes: dict[str, Any], heads: tuple[int, int], profile: Profile
) -> None:
    graph = layer(kind, heads, attributes)
    row = gather_at(graph)
    (node,) = [node for node in row.nodes if node.operation.name == "attention"]
    assert node.inputs[0].type.shape[2] == 2
    (turned, whole) = [node for node in row.nodes if node.operation.name == "rotary"]
    assert sorted(n.inputs[0].type.shape[2] for n in (turned, whole)) == [2, 16]
    weights = {
        path: values(tuple(value.type.shape), DType.F32, seed)  # type: ignore[arg-type]
        for seed, (path, value) in enumerate(graph.weights.items())
    }
    options = BuildOptions(opset=23 if profile == "fused" else 18, profile=profile)
    x = values((3, 16, 24), DType.F32)
    at = np.array([0, 7, 15], np.int32)
    full = run_onnx(build_model(graph, weights.__getitem__, options), {"x": x})["y"]
    some = run_onnx(build_model(row, weights.__getitem__, options), {"x": x, "at": at})["y"]
    assert some.tobytes() == full[np.arange(3), at][:, None].tobytes()


def test_rows_of_heads() -> None:
    batch = Batch()
    operation = all_operations()["attention"]

    def rows(heads: int, axes: tuple[int | None, ...]) -> Any:
        q = Value(TensorType(DType.F32, (batch, 2, 3, 4)))
        k = Value(TensorType(DType.F32, (batch, heads, 3, 4)))
        return operation.restrict(
            Rows(
                inputs=(q, k, k),
                input_axes=axes,
                result=TensorType(DType.F32, (batch, 4, 3, 4)),
                axis=1,
                count=2,
                positions=Value(TensorType(DType.I32, (batch, 2))),
                causal=False,
            ),
            single("attention", [values((1, 2, 3, 4), DType.F32)] * 3)[1].attributes,
        )

    assert rows(2, (1, 1, 1)) is not None
    assert rows(1, (1, None, None)) is not None
    # Which of two heads of k serves a head of q depends on which head of q it is.
    assert rows(2, (1, None, None)) is None


@pytest.mark.parametrize("profile", ["portable", "fused"])
@pytest.mark.parametrize("heads", [(3, 3), (4, 2)])
def test_a_record_has_the_same_bits_in_any_batch(heads: tuple[int, int], profile: Profile) -> None:
    graph = layer("plain", heads, {"causal": True})
    weights = {
        path: values(tuple(value.type.shape), DType.F32, seed)  # type: ignore[arg-type]
        for seed, (path, value) in enumerate(graph.weights.items())
    }
    options = BuildOptions(opset=23 if profile == "fused" else 18, profile=profile)
    model = build_model(graph, weights.__getitem__, options)
    x = values((5, 16, 24), DType.F32)
    together = run_onnx(model, {"x": x})["y"]
    for record in range(5):
        alone = run_onnx(model, {"x": x[record : record + 1]})["y"]
        assert alone.tobytes() == together[record : record + 1].tobytes()


def test_native_bf16_is_well_formed() -> None:
    graph = layer("plain", (4, 2), {"causal": True, "precision": "bf16"})
    weights = {
        path: values(tuple(value.type.shape), DType.F32)  # type: ignore[arg-type]
        for path, value in graph.weights.items()
    }
    model = build_model(graph, weights.__getitem__, BuildOptions(native_bf16=True))
    onnx.checker.check_model(model, full_check=True)
