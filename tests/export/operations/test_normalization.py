"""softmax, log-softmax, layer-normalize, rms-normalize: meaning, ONNX form, rules and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Value, make_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import check, check_axis_rule, error_of, lowered_operators, single

FLOATS = [DType.F32, DType.F64, DType.BF16]
OPSETS = st.sampled_from([18, 21, 23])

#: Rows whose elements are nearly equal are divided by a root of about √epsilon, which magnifies the
#: rounding of their mean: a few units in the last place of 4, over 3e-3.
ABSOLUTE = {DType.F32: 3e-4, DType.F64: 1e-12, DType.BF16: 2e-2}


def values(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    generator = np.random.default_rng([seed, *shape])
    return generator.uniform(-4, 4, shape).astype(dtype.numpy)


shapes = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize("name", ["softmax", "log-softmax"])
@given(st.data(), shapes, st.sampled_from(FLOATS), OPSETS)
def test_distributions(
    name: str, data: st.DataObject, shape: tuple[int, ...], dtype: DType, opset: int
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    batch = data.draw(st.none() | st.sampled_from(range(len(shape))))
    check(name, [values(shape, dtype)], [batch], axis=axis, opset=opset)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_softmax_by_its_formula(dtype: DType) -> None:
    x = values((3, 4), dtype)
    (found,) = check("softmax", [x])
    (logarithm,) = check("log-softmax", [x])
    for row, y, z in zip(x, found, logarithm, strict=True):
        total = sum(math.exp(v) for v in row)
        np.testing.assert_allclose(y, [math.exp(v) / total for v in row], rtol=1e-5)
        np.testing.assert_allclose(z, [v - math.log(total) for v in row], rtol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "log-softmax"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_distributions_of_extremes(name: str, dtype: DType) -> None:
    rows = np.array(
        [
            [np.inf, 1, 2],
            [-np.inf, 0, 1],
            [-np.inf, -np.inf, -np.inf],
            [np.nan, 0, 0],
            [1e30, -1e30, 0],
        ]
    ).astype(dtype.numpy)
    (found,) = check(name, [rows])
    kept = np.isfinite(found.astype(np.float64)).any(axis=1) | (found == 0).any(axis=1)
    assert kept.tolist() == [False, True, False, False, True]


@pytest.mark.parametrize("name", ["softmax", "log-softmax"])
def test_distribution_axes(name: str) -> None:
    x = values((2, 3, 4), DType.F32)
    assert [check_axis_rule(name, [x], axis=axis) for axis in (0, 1, -1)] == [2, 2, 2]


@pytest.mark.parametrize("name", ["softmax", "log-softmax"])
def test_distribution_errors(name: str) -> None:
    error_of("E-VALUE-001", name, [values((2, 3), DType.F32)], axis=2)  # softmax 1
    error_of("E-VALUE-001", name, [values((), DType.F32)])  # softmax 1
    error_of("E-DTYPE-002", name, [np.ones(3, np.int32)])


@st.composite
def standardizations(draw: st.DrawFn) -> tuple[str, list[Array], tuple[str, ...], int, int | None]:
    """An operation, its tensors, which optional ones they are, the axis, and the batch's axis."""
    name = draw(st.sampled_from(["layer-normalize", "rms-normalize"]))
    shape = draw(shapes)
    dtype = draw(st.sampled_from(FLOATS))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    start = axis % len(shape)
    optional = ["scale", "bias"] if name == "layer-normalize" else ["scale"]
    given_names = tuple(n for n in optional if draw(st.booleans()))
    tensors = [values(shape, dtype)]
    tensors += [values(shape[start:], dtype, seed) for seed, _ in enumerate(given_names, 1)]
    batch = draw(st.sampled_from(range(start))) if start and draw(st.booleans()) else None
    return name, tensors, given_names, axis, batch


@given(standardizations(), OPSETS)
def test_standardizations(
    case: tuple[str, list[Array], tuple[str, ...], int, int | None], opset: int
) -> None:
    name, tensors, names, axis, batch = case
    absolute = ABSOLUTE[DType.of(tensors[0])]
    check(name, tensors, [batch], absolute=absolute, axis=axis, given=names, opset=opset)
    if opset == 23:
        check(
            name,
            tensors,
            [batch],
            absolute=absolute,
            axis=axis,
            given=names,
            opset=opset,
            profile="fused",
        )


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_standardizations_by_their_formulas(dtype: DType) -> None:
    x, scale, bias = values((3, 4), dtype), values((4,), dtype, 1), values((4,), dtype, 2)
    (layer,) = check("layer-normalize", [x, scale, bias], given=("scale", "bias"), epsilon=0.5)
    (root,) = check("rms-normalize", [x, scale], given=("scale",), epsilon=0.5)
    for i, row in enumerate(x.astype(np.float64)):
        mean = sum(row) / 4
        variance = sum((v - mean) ** 2 for v in row) / 4
        square = sum(v * v for v in row) / 4
        for j, v in enumerate(row):
            want = (v - mean) / math.sqrt(variance + 0.5) * scale[j] + bias[j]
            assert layer[i, j] == pytest.approx(want, rel=1e-5)
            assert root[i, j] == pytest.approx(v / math.sqrt(square + 0.5) * scale[j], rel=1e-5)


def test_bf16_statistics_are_f32() -> None:
    x = np.concatenate([np.full(512, 1.0), np.full(512, 3.0)]).astype(DType.BF16.numpy)
    (found,) = check("layer-normalize", [x], epsilon=0.0)
    # A mean summed in bf16 would stop growing long before the end.
    np.testing.assert_array_equal(found.astype(np.float32), np.repeat([-1.0, 1.0], 512))


def test_f64_epsilon_is_f64() -> None:
    x = np.array([[1e-3, -1e-3]])
    for name in ("layer-normalize", "rms-normalize"):
        check(name, [x], epsilon=1e-5, relative=1e-13, absolute=0)


def test_standardization_axes() -> None:
    x, scale = values((2, 3, 4), DType.F32), values((4,), DType.F32)
    names = ("scale", "bias")
    assert check_axis_rule("layer-normalize", [x, scale, scale], given=names) == 4
    assert check_axis_rule("rms-normalize", [x, scale], given=("scale",)) == 3
    assert check_axis_rule("rms-normalize", [x, x[0]], given=("scale",), axis=1) == 3


@pytest.mark.parametrize("name", ["layer-normalize", "rms-normalize"])
def test_standardization_errors(name: str) -> None:
    x = values((2, 3), DType.F32)
    error_of("E-VALUE-001", name, [x], axis=2)  # layer-normalize 1
    error_of("E-VALUE-001", name, [x[0, 0]])  # layer-normalize 1
    value = Value(TensorType(DType.F32, (2, Batch())))
    attributes = {"axis": -1, "epsilon": 1e-5, "given": ()}
    with pytest.raises(SexpgpuError) as caught:  # layer-normalize 2
        make_node(all_operations()[name], [value], attributes)
    assert caught.value.code == "E-SHAPE-002"
    error_of("E-SHAPE-001", name, [x, x], given=("scale",))  # layer-normalize 3
    error_of("E-SHAPE-001", name, [x, np.ones(2, np.float32)], given=("scale",))
    for epsilon in (-1.0, math.nan, math.inf):
        error_of("E-VALUE-001", name, [x], epsilon=epsilon)  # layer-normalize 4


def test_operators() -> None:
    graph, _ = single("rms-normalize", [values((2, 4), DType.F32)])
    assert lowered_operators(graph, opset=23, profile="fused") == ["RMSNormalization"]
    assert "Pow" in lowered_operators(graph)
    graph, _ = single("layer-normalize", [values((2, 4), DType.F32)])
    assert lowered_operators(graph) == ["LayerNormalization"]
