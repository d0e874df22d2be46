from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Array, DType, TensorType
from sexpgpu.export.operations.operation import all_operations
from support.harness import check, check_graph, lowered_operators

INTEGERS = [DType.I32, DType.I64]


def integer_power(base: int, exponent: int, dtype: DType) -> int:
    """By Python's own integers, with a modulus."""
    if exponent < 0:
        # power 1
        return {1: 1, -1: 1 - 2 * (exponent % 2)}.get(base, 0)
    modulus = 2 ** (8 * dtype.itemsize)
    residue = int(pow(base, exponent, modulus))
    return residue - modulus if residue >= modulus // 2 else residue


@pytest.mark.parametrize("dtype", INTEGERS)
@settings(max_examples=25)
@given(data=st.data())
def test_integers_wrap_around_with_every_bit(dtype: DType, data: st.DataObject) -> None:
    limits = np.iinfo(dtype.numpy)
    numbers = st.integers(limits.min, limits.max) | st.integers(-9, 70)
    a = data.draw(st.lists(numbers, min_size=1, max_size=6))
    b = data.draw(st.lists(numbers, min_size=1, max_size=6))
    (result,) = check("pow", [np.array(a, dtype.numpy)[:, None], np.array(b, dtype.numpy)])
    assert result.tolist() == [[integer_power(x, y, dtype) for y in b] for x in a]


def test_bits_that_a_double_does_not_hold() -> None:
    (result,) = check("pow", [np.array([3], np.int64), np.array([39], np.int64)])
    assert result.tolist() == [3**39]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_pow_1_negative_powers_of_integers(dtype: DType) -> None:
    # pow 1
    base = np.array([0, 1, -1, 2, -2, np.iinfo(dtype.numpy).max], dtype.numpy)
    exponent = np.array([-1, -2, np.iinfo(dtype.numpy).min], dtype.numpy)
    (result,) = check("pow", [base[:, None], exponent])
    assert result.tolist() == [[0] * 3, [1] * 3, [-1, 1, 1], [0] * 3, [0] * 3, [0] * 3]


def known_exponent(base: Array, exponent: Array) -> Graph:
    """(pow x exponent) where the exponent is a literal."""
    x = Value(TensorType(DType.of(base), base.shape), name="x")
    literal = make_node(all_operations()["constant"], [], {"value": exponent})
    node = make_node(all_operations()["pow"], [x, literal.results[0]], {})
    return Graph(inputs=[x], nodes=[literal, node], outputs={"y": node.results[0]})


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64])
@pytest.mark.parametrize(("exponent", "products"), [(2, 1), (3, 2), (4, 2)])
def test_a_small_known_exponent_is_products(dtype: DType, exponent: int, products: int) -> None:
    base = np.array([-3, 0, 2, 4], dtype.numpy)
    graph = known_exponent(base, np.array(exponent, dtype.numpy))
    operators = lowered_operators(graph)
    assert operators.count("Mul") == products
    assert "Pow" not in operators
    (result,) = check_graph(graph, {"x": base}, {})
    assert result.astype(int).tolist() == [(-3) ** exponent, 0, 2**exponent, 4**exponent]


@pytest.mark.parametrize("exponent", [0, 1, 13, 31, 2**30 + 1, -1, -2])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_any_known_exponent_of_integers(dtype: DType, exponent: int) -> None:
    base = np.array([-3, -1, 0, 1, 2, 7], dtype.numpy)
    graph = known_exponent(base, np.array(exponent, dtype.numpy))
    (result,) = check_graph(graph, {"x": base}, {})
    assert result.tolist() == [integer_power(int(x), exponent, dtype) for x in base]


@pytest.mark.parametrize("exponent", [0.5, -1.0, 0.0, 5.0, 2.5])
def test_other_known_exponents_of_floats_stay_powers(exponent: float) -> None:
    base = np.array([-2, 0, 0.5, 9])
    graph = known_exponent(base, np.array(exponent))
    assert lowered_operators(graph) == ["Pow"]
    check_graph(graph, {"x": base}, {})


def test_a_known_exponent_of_higher_rank_keeps_the_shape() -> None:
    base = np.array([3.0, 4.0], np.float32)
    graph = known_exponent(base, np.array([[2.0]], np.float32))
    (result,) = check_graph(graph, {"x": base}, {})
    assert result.tolist() == [[9, 16]]
