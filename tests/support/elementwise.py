"""Operands for elementwise operations: every dtype, shapes that broadcast, edge values."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.operations.operation import all_operations
from support.arrays import OPSETS, SEEDS, random_array
from support.harness import check

#: Attributes that have no default, or whose default says little.
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "cast": {"dtype": DType.F32},
    "clip": {"low": -1.0, "high": 3.0},
}
#: Operations that are least exact in some runtime kernels, and why.
ABSOLUTE = {
    # x times a Sigmoid that is exact to 1.2e-7, near x = -17.
    ("silu", DType.F32): 3e-6,
}

_FLOATS = [0.0, 1, 2.5, 0.5, 1.5, 1e-5, 1e-20, 0.3, 3, 4, 7, 15, 20, 30, 3e38, np.inf]
_INTEGERS = [0, 1, 2, 3, 5, 6, 7, 12, 13, 31, 32, 33, 62, 63, 64, 100]


def cases() -> list[tuple[str, DType]]:
    """Every elementwise operation with every dtype of its operands."""
    return [
        (name, dtype)
        for name, operation in all_operations().items()
        if operation.family == "elementwise"
        for dtype in DType
        if dtype in operation.signature.operands[-1].dtypes
    ]


def edges(dtype: DType) -> Array:
    """A vector of values at which functions turn, overflow or have no result."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        values = [*_INTEGERS, *(-n for n in _INTEGERS), limits.min, limits.min + 1, limits.max]
        return np.array(values, dtype.numpy)
    return np.array([*_FLOATS, *(-n for n in _FLOATS), np.nan]).astype(dtype.numpy)


def arrange(name: str, arrays: list[Array], condition: Array) -> list[Array]:
    """The operands of an operation: `where` has a bool one first."""
    return [condition, *arrays] if name == "where" else arrays


def arity(name: str) -> int:
    """How many operands of the parametrised dtype the operation has."""
    return len(all_operations()[name].signature.operands) - (name == "where")


def check_random(data: Any, name: str, dtype: DType, **attributes: Any) -> None:
    """Draws shapes, values, a batch axis and an opset, and compares with ONNX Runtime."""
    count = arity(name) + (name == "where")
    drawn = data.draw(mutually_broadcastable_shapes(num_shapes=count, min_side=0, max_side=4))
    result, seed = drawn.result_shape, data.draw(SEEDS)
    special = data.draw(st.booleans())
    arrays = [
        random_array(seed + i, dtype, shape, special=special)
        for i, shape in enumerate(drawn.input_shapes)
    ]
    if name == "where":
        arrays[0] = random_array(seed, DType.BOOL, drawn.input_shapes[0])
    batch = data.draw(st.sampled_from([None, 0, 1]))
    axes = [_aligned(array.shape, result, batch) for array in arrays]
    attributes = ATTRIBUTES.get(name, {}) | attributes
    absolute = ABSOLUTE.get((name, dtype))
    check(name, arrays, axes, opset=data.draw(OPSETS), absolute=absolute, **attributes)


def _aligned(shape: tuple[int, ...], result: tuple[int, ...], batch: int | None) -> int | None:
    """The operand's axis that runs along axis `batch` of the result."""
    if batch is None or batch >= len(result):
        return None
    axis = batch - len(result) + len(shape)
    return axis if axis >= 0 and shape[axis] == result[batch] else None
