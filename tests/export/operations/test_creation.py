"""Tests of operations that make tensors."""

from __future__ import annotations

import numpy as np
import pytest
from sexpgpu.export.graph.types import DType
from support.harness import check, check_axis_rule


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 1, 3)])
def test_constant_of_every_dtype(dtype: DType, opset: int, shape: tuple[int, ...]) -> None:
    value = (np.arange(np.prod(shape, dtype=int)).reshape(shape) - 2).astype(dtype.numpy)
    (result,) = check("constant", [], value=value, opset=opset)
    assert result.tobytes() == value.tobytes()
    assert check_axis_rule("constant", [], value=value) == 0
