from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.types import DType
from support.arrays import random_array
from support.harness import check, error_of


@pytest.mark.parametrize("dtype", list(DType))
def test_chooses_element_for_element(dtype: DType) -> None:
    condition = np.array([[True], [False], [True]])
    a, b = random_array(1, dtype, (3, 4)), random_array(2, dtype, (4,))
    (result,) = check("where", [condition, a, b])
    want = [a[i] if condition[i, 0] else b for i in range(3)]
    assert result.tolist() == [row.tolist() for row in want]


def test_what_is_not_chosen_does_not_matter() -> None:
    condition = np.array([True, False])
    (result,) = check("where", [condition, np.array([1.0, np.nan]), np.array([np.inf, 2.0])])
    assert result.tolist() == [1, 2]


def test_the_condition_is_bool() -> None:
    x = np.ones(2, np.float32)
    error = error_of("E-DTYPE-002", "where", [np.ones(2, np.int32), x, x])
    assert "`condition`" in str(error.came)


def test_the_condition_alone_may_have_the_longer_shape() -> None:
    (result,) = check("where", [np.array([True, False]), np.array(1), np.array(2)])
    assert result.tolist() == [1, 2]
