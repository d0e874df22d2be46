from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.onnx.lowering import ONNX_DTYPES, Lowering
from sexpgpu.export.onnx.names import Names
from sexpgpu.export.onnx.term import Term
from support.harness import run_onnx


def compute(formula: object, x: Array) -> Array:
    """What a formula of one term gives."""
    names = Names()
    lowering = Lowering(names=names)
    term = Term(lowering, names.fresh("x"), DType.of(x))
    result = formula(term)  # type: ignore[operator]
    graph = helper.make_graph(
        lowering.nodes,
        "formula",
        [helper.make_tensor_value_info("x", ONNX_DTYPES[term.dtype], x.shape)],
        [helper.make_tensor_value_info(result.name, ONNX_DTYPES[result.dtype], x.shape)],
        initializer=lowering.initializers,
    )
    opset = [helper.make_opsetid("", 18)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return run_onnx(model, {"x": x})[result.name]


X = np.array([-2.0, 0.5, 3.0])


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: x + 1,
        lambda x: 1 + x,
        lambda x: x - 1,
        lambda x: 1 - x,
        lambda x: 2 * x * x,
        lambda x: x / 2,
        lambda x: 2 / x,
        lambda x: -x,
        lambda x: abs(x),
        lambda x: x < 0.5,
        lambda x: x <= 0.5,
        lambda x: x > 0.5,
        lambda x: x >= 0.5,
        lambda x: (x > 0) & (x < 1),
        lambda x: (x < 0) | (x > 1),
        lambda x: (x < 1) ^ (x > 0),
        lambda x: ~(x > 0),
    ],
)
def test_operators_mean_what_numpy_means(formula: object) -> None:
    found, want = compute(formula, X), formula(X)  # type: ignore[operator]
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


def test_bits_of_integers() -> None:
    x = np.array([6, -1], np.int32)
    assert compute(lambda x: x & 3, x).tolist() == [2, 3]
    assert compute(lambda x: x | 1, x).tolist() == [7, -1]
    assert compute(lambda x: x ^ 2, x).tolist() == [4, -3]
    assert compute(lambda x: ~x, x).tolist() == [-7, 0]


def test_division_of_integers_is_cut() -> None:
    assert compute(lambda x: x / 2, np.array([7, -7])).tolist() == [3, -3]


def test_a_choice_with_a_number_on_either_side() -> None:
    assert compute(lambda x: (x > 0).where(x, 0), X).tolist() == [0, 0.5, 3]
    assert compute(lambda x: (x > 0).where(0, x), X).tolist() == [-2, 0, 0]


def test_a_polynomial_by_horner() -> None:
    np.testing.assert_allclose(
        compute(lambda x: x.polynomial((2, -1, 0.5)), X), np.polyval((2, -1, 0.5), X), rtol=1e-15
    )


def test_numbers_take_the_dtype_of_the_term() -> None:
    assert compute(lambda x: x + 0.5, X.astype(np.float32)).dtype == np.float32
    assert compute(lambda x: x.cast(DType.I64) + 1, X).dtype == np.int64
