"""The formulas of special functions alone; `test_functions` tests the operations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sexpgpu.export.graph.types import DType
from sexpgpu.export.operations.special import erf_array
from support.harness import lowered_operators, single


def test_erf_array_is_that_of_the_c_library() -> None:
    x = np.array([[-3, -0.5, 0], [1e-300, 0.47, 27]])
    assert erf_array(x).tolist() == [[math.erf(v) for v in row] for row in x]
    assert erf_array(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert erf_array(np.array(0.5, np.float32)).dtype == np.float32


def test_erf_array_goes_to_one_and_keeps_nan() -> None:
    result = erf_array(np.array([-np.inf, np.inf, np.nan], np.float32))
    assert result[:2].tolist() == [-1, 1]
    assert np.isnan(result[2])


@pytest.mark.parametrize("name", ["erf", "tan"])
def test_operators_that_runtimes_have_are_used(name: str) -> None:
    operators = {
        dtype: lowered_operators(single(name, [np.ones(1, dtype.numpy)])[0])
        for dtype in (DType.F32, DType.F64)
    }
    assert operators[DType.F32] == [name.capitalize()]
    assert name.capitalize() not in operators[DType.F64]
