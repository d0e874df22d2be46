"""Shape rules that several operations share, and the errors they raise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from sexpgpu.export.graph.types import (
    Array,
    Batch,
    Dimension,
    DType,
    Shape,
    TensorType,
    format_shape,
)
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate
from sexpgpu.schemas.errors import SexpgpuError


def fail_shape(
    message: str, *, came: str, expected: str | None = None, help: str | None = None
) -> NoReturn:
    """Shapes do not fit."""
    raise SexpgpuError("E-SHAPE-001", message, came=came, expected=expected, help=help)


def fail_value(
    message: str, *, came: str, expected: str | None = None, help: str | None = None
) -> NoReturn:
    """An attribute is out of range."""
    raise SexpgpuError("E-VALUE-001", message, came=came, expected=expected, help=help)


def fail_batch(message: str, *, came: str, help: str | None = None) -> NoReturn:
    """The batch is asked for more than its name."""
    raise SexpgpuError("E-SHAPE-002", message, came=came, help=help)


def normalize_axis(name: str, axis: int, rank: int) -> int:
    """A non-negative axis; negative ones count from the end."""
    if not -rank <= axis < rank:
        fail_value(
            f"`{name}` is given an axis that the tensor does not have",
            came=f"axis {axis} of a tensor of rank {rank}",
            expected=f"{-rank} to {rank - 1}" if rank else "a tensor with an axis",
        )
    return axis % rank


def normalize_axes(name: str, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Non-negative axes in ascending order; None stands for all."""
    if axes is None:
        return tuple(range(rank))
    found = sorted(normalize_axis(name, axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        fail_value(f"`{name}` is given an axis twice", came=str(list(axes)))
    return tuple(found)


def fitting(name: str, value: float, dtype: DType) -> Array:
    """A number of the program as an array of rank 0, where the dtype has it."""
    if dtype.is_float:
        with np.errstate(over="ignore"):
            array = np.asarray(value, np.float64 if dtype is DType.F64 else np.float32)
        array = array.astype(dtype.numpy)
        fits = not (math.isfinite(value) and np.isinf(array))
    elif dtype is DType.BOOL:
        array, fits = np.asarray(value == 1), value in (0, 1)
    else:
        limits = np.iinfo(dtype.numpy)
        whole = int(value) if math.isfinite(value) else None
        fits = whole == value and int(limits.min) <= whole <= int(limits.max)
        array = np.asarray(whole if fits else 0, dtype.numpy)
    if not fits:
        fail_value(
            f"`{name}` is given a number that {dtype} does not have",
            came=f"{value:g}",
            expected="0 or 1" if dtype is DType.BOOL else f"a number of {dtype}",
        )
    return array


def known(name: str, what: str, dimension: Dimension) -> int:
    """A dimension that must be a whole number."""
    if isinstance(dimension, Batch):
        fail_batch(
            f"`{name}` needs to know {what}, and it is the batch",
            came=str(dimension),
            help="the model is traced once for any number of records",
        )
    return dimension


def broadcast(name: str, shapes: Sequence[Shape]) -> Shape:
    """NumPy's rule: aligned at the end, 1 stretches, all else must be equal."""
    rank = max(len(shape) for shape in shapes)
    result: list[Dimension] = []
    for index in range(-rank, 0):
        dimension: Dimension = 1
        for shape in shapes:
            if -index > len(shape) or shape[index] == 1:
                continue
            if dimension not in (1, shape[index]):
                fail_shape(
                    f"the shapes of `{name}` do not broadcast",
                    came=" and ".join(format_shape(s) for s in shapes),
                    expected="dimensions that are equal or 1, aligned at the end; here "
                    f"{dimension} meets {shape[index]}",
                )
            dimension = shape[index]
        result.append(dimension)
    return tuple(result)


def elementwise_fate(operand: TensorType, axis: int, result: TensorType) -> Fate:
    """Where an axis goes under broadcasting; an axis that is stretched has no positions."""
    target = axis + result.rank - operand.rank
    if operand.shape[axis] != result.shape[target]:
        return WHOLE
    return Apart(target)
