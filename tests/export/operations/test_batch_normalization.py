"""batch-normalize: meaning, ONNX form, rules and errors."""

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


def operands(shape: tuple[int, ...], dtype: DType = DType.F32) -> list[Array]:
    """Of that shape, and of its channels scale, bias, mean and a positive variance."""
    generator = np.random.default_rng([7, *shape])
    vectors = generator.uniform(-2, 2, (4, shape[1]))
    vectors[3] = np.abs(vectors[3]) + 0.1
    return [a.astype(dtype.numpy) for a in (generator.uniform(-4, 4, shape), *vectors)]


@given(
    st.data(),
    st.lists(st.integers(0, 4), min_size=2, max_size=5).map(tuple),
    st.sampled_from([DType.F32, DType.F64, DType.BF16]),
    st.sampled_from([18, 21, 23]),
)
def test_channels(data: st.DataObject, shape: tuple[int, ...], dtype: DType, opset: int) -> None:
    batch = data.draw(st.sampled_from([None, 0, *range(2, len(shape))]))
    epsilon = data.draw(st.sampled_from([0.0, 1e-5, 0.5]))
    absolute = {DType.F32: 2e-5, DType.BF16: 0.1}.get(dtype)
    tolerance = {} if absolute is None else {"absolute": absolute}
    check(
        "batch-normalize",
        operands(shape, dtype),
        [batch],
        epsilon=epsilon,
        opset=opset,
        **tolerance,
    )


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_by_its_formula(dtype: DType) -> None:
    x, scale, bias, mean, variance = given_arrays = operands((2, 3, 4), dtype)
    (found,) = check("batch-normalize", given_arrays, [0], epsilon=0.5, absolute=1e-5)
    for (record, channel, place), number in np.ndenumerate(x):
        root = math.sqrt(variance[channel] + 0.5)
        want = (number - mean[channel]) / root * scale[channel] + bias[channel]
        assert found[record, channel, place] == pytest.approx(want, rel=1e-4, abs=1e-5)


def test_infinite_and_no_numbers_stay() -> None:
    x, *vectors = operands((1, 2, 5))
    x[0, :, :3] = [np.nan, np.inf, -np.inf]
    (found,) = check("batch-normalize", [x, *vectors], [0])
    assert np.isnan(found[0, :, 0]).all()
    np.testing.assert_array_equal(found[0, :, 1], np.inf * np.sign(vectors[0]))


def test_axes() -> None:
    for shape in ((2, 3), (2, 3, 4)):
        found = check_axis_rule("batch-normalize", operands(shape))
        assert found == len(shape) + 4


def test_errors() -> None:
    x, *vectors = operands((2, 3))
    error_of("E-SHAPE-001", "batch-normalize", [x[0], *vectors])  # batch-normalize 1
    types = [(2, Batch()), (3,), (3,), (3,), (3,)]
    values = [Value(TensorType(DType.F32, shape)) for shape in types]
    with pytest.raises(SexpgpuError) as caught:  # batch-normalize 1
        make_node(all_operations()["batch-normalize"], values, {"epsilon": 1e-5})
    assert caught.value.code == "E-SHAPE-002"
    for place in range(4):
        wrong = [v[:2] if i == place else v for i, v in enumerate(vectors)]
        error_of("E-SHAPE-001", "batch-normalize", [x, *wrong])  # batch-normalize 2
    for epsilon in (-1.0, math.nan, math.inf):
        error_of("E-VALUE-001", "batch-normalize", [x, *vectors], epsilon=epsilon)  # 3
    error_of("E-DTYPE-001", "batch-normalize", [x, *(v.astype(np.float64) for v in vectors)])
    error_of("E-DTYPE-002", "batch-normalize", [a.astype(np.int32) for a in (x, *vectors)])


def test_operators() -> None:
    graph, _ = single("batch-normalize", operands((2, 3, 4)))
    assert lowered_operators(graph) == ["BatchNormalization"]
    graph, _ = single("batch-normalize", operands((2, 3, 4), DType.F64))
    assert "BatchNormalization" not in lowered_operators(graph)
    graph, _ = single("batch-normalize", operands((0, 3)))
    assert lowered_operators(graph) == ["Identity"]
