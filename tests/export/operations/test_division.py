from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import DType, TensorType
from sexpgpu.export.operations.operation import all_operations
from support.harness import check, check_graph, error_of, lowered_operators

WRAP = {DType.I32: 2**32, DType.I64: 2**64}


@pytest.mark.parametrize("dtype", WRAP)
@settings(max_examples=50)
@given(data=st.data())
def test_integers_follow_the_floor(dtype: DType, data: st.DataObject) -> None:
    limits = np.iinfo(dtype.numpy)
    numbers = st.integers(limits.min, limits.max) | st.integers(-9, 9)
    a = data.draw(st.lists(numbers, min_size=1, max_size=8))
    b = data.draw(st.lists(numbers, min_size=1, max_size=8))
    inputs = [np.array(a, dtype.numpy)[:, None], np.array(b, dtype.numpy)]
    (quotient,) = check("floor-divide", inputs)
    (remainder,) = check("mod", inputs)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            assert remainder[i, j] == (x % y if y else 0)
            assert (int(quotient[i, j]) - (x // y if y else 0)) % WRAP[dtype] == 0


_EXTREMES = """
import numpy as np
from support.harness import check
for dtype in (np.int32, np.int64):
    least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
    a = np.array([least, greatest, -1, 0, 1], dtype)
    for name in ("mod", "floor-divide"):
        check(name, [a[:, None], a])
        for divisor in (0, -1):
            check(name, [a, np.array(divisor, dtype)])
print("alive")
"""


def test_no_divisor_stops_the_process() -> None:
    """A trap would end the process, so that another one runs it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _EXTREMES], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "alive\n"


@pytest.mark.parametrize(
    ("a", "b", "quotient", "remainder"),
    [
        (7.0, 2.0, 3, 1),
        (-7.0, 2.0, -4, 1),
        (7.0, -2.0, -4, -1),
        (1.0, 0.1, 9, None),
        (5.0, np.inf, 0, 5),
        (-5.0, np.inf, -1, np.inf),
        (5.0, 0.0, np.inf, np.nan),
        (0.0, 0.0, np.nan, np.nan),
        (np.inf, 2.0, np.nan, np.nan),
        (np.nan, 2.0, np.nan, np.nan),
    ],
)
def test_floats_follow_the_floor(
    a: float, b: float, quotient: float, remainder: float | None
) -> None:
    inputs = [np.array([a]), np.array([b])]
    np.testing.assert_equal(check("floor-divide", inputs)[0][0], float(quotient))
    (found,) = check("mod", inputs)
    if remainder is not None:
        np.testing.assert_equal(found[0], float(remainder))


@settings(max_examples=50)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32).filter(lambda x: abs(x) > 1e-3), min_size=2, max_size=9)
)
def test_quotients_of_floats_are_those_of_exact_numbers(numbers: list[float]) -> None:
    x = np.array(numbers)
    (quotient,) = check("floor-divide", [x[:, None], x])
    for i, a in enumerate(numbers):
        for j, b in enumerate(numbers):
            assert quotient[i, j] == floor(Fraction(a) / Fraction(b))


@pytest.mark.parametrize("dtype", WRAP)
@pytest.mark.parametrize("divisor", [3, -1, 0])
def test_a_known_divisor_is_guarded_where_it_must_be(dtype: DType, divisor: int) -> None:
    x = Value(TensorType(dtype, (3,)), name="x")
    literal = np.array(divisor, dtype.numpy)
    known = make_node(all_operations()["constant"], [], {"value": literal})
    node = make_node(all_operations()["mod"], [x, known.results[0]], {})
    graph = Graph(inputs=[x], nodes=[known, node], outputs={"y": node.results[0]})
    assert ("Where" in lowered_operators(graph)) is (divisor != 3)
    check_graph(graph, {"x": np.array([np.iinfo(dtype.numpy).min, 7, -7], dtype.numpy)}, {})


def test_division_of_integers_names_its_alternatives() -> None:
    error = error_of("E-DTYPE-002", "/", [np.ones(1, np.int32)] * 2)
    assert "`floor-divide`" in str(error.help)
    assert "`cast`" in str(error.help)
