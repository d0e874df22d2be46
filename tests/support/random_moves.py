"""How random graphs draw operations that make, move and pick elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.operations.operation import Operation
from support.random_plain import Made, NothingFits, Recipe, random_numbers

if TYPE_CHECKING:
    from support.random_graphs import RandomGraph


def _permute(made: RandomGraph, operation: Operation) -> Made:
    value = made.pick()
    order = made.generator.permutation(value.type.rank)
    return [value], {"axes": tuple(int(axis) for axis in order)}


def _swap(made: RandomGraph, operation: Operation) -> Made:
    value = made.pick(lambda type: type.rank > 1)
    axes = made.generator.permutation(value.type.rank)[:2]
    return [value], {"axes": made.choose(None, tuple(int(axis) for axis in axes))}


def _slice(made: RandomGraph, operation: Operation) -> Made:
    value = made.pick(lambda type: type.rank > 0)
    axis = int(made.generator.integers(value.type.rank))
    start, end = made.choose((None, None), (None, -1), (1, None), (0, 2), (None, 1))
    return [value], {"axis": axis, "from": start, "to": end, "step": made.choose(1, 1, 2, -1)}


def _split(made: RandomGraph, operation: Operation) -> Made:
    value = made.pick(lambda type: type.rank > 0)
    axis = int(made.generator.integers(value.type.rank))
    length = value.type.shape[axis]
    if not isinstance(length, int) or length < 2:
        raise NothingFits
    parts = made.choose((2,), (1, length - 1), (length,))
    return [value], {"axis": axis, "parts": parts}


def _broadcast(made: RandomGraph, operation: Operation) -> Made:
    value, other = made.pick(), made.pick()
    if made.chance(0.5):
        return [value], {"shape": other.type.shape}
    lead = made.choose((), (2,), (Batch(),))
    shape = [made.positions if d == 1 and made.chance(0.7) else d for d in value.type.shape]
    return [value], {"shape": (*lead, *shape)}


def _expand(made: RandomGraph, operation: Operation) -> Made:
    value = made.pick(lambda type: type.rank < 5)
    return [value], {"axis": (int(made.generator.integers(value.type.rank + 1)),)}


def _squeeze(made: RandomGraph, operation: Operation) -> Made:
    value = made.pick(lambda type: 1 in type.shape)
    return [value], {"axis": (value.type.shape.index(1),)}


def _same_shape(made: RandomGraph, operation: Operation) -> Made:
    """Tensors to be joined, of one shape or nearly."""
    first = made.pick(lambda type: type.rank > 0)
    inputs = [first]
    for _ in range(int(made.generator.integers(1, 3))):
        other = made.pick(
            lambda type: (
                type.dtype is first.type.dtype
                and type.rank == first.type.rank
                and sum(a != b for a, b in zip(type.shape, first.type.shape, strict=True)) < 2
            )
        )
        inputs.append(other)
    return inputs, {"axis": int(made.generator.integers(first.type.rank))}


def _pad(made: RandomGraph, operation: Operation) -> Made:
    value = made.pick(lambda type: type.rank > 0)
    widths = [tuple(made.choose(0, 0, 1) for _ in range(value.type.rank)) for _ in range(2)]
    mode = made.choose("constant", "edge", "reflect")
    return [value], {"before": widths[0], "after": widths[1], "mode": mode, "value": 1.0}


def _tile(made: RandomGraph, operation: Operation) -> Made:
    value = made.pick(lambda type: type.rank > 0)
    return [value], {"repeats": tuple(made.choose(1, 1, 2) for _ in range(value.type.rank))}


def _constant(made: RandomGraph, operation: Operation) -> Made:
    shape = made.choose(
        (made.positions,), (made.positions, 1), (made.positions,) * 2, (), (1, made.positions, 1)
    )
    return [], {"value": random_numbers(made.generator, made.choose(*DType), shape)}


def _iota(made: RandomGraph, operation: Operation) -> Made:
    return [], {
        "length": (made.choose(made.positions, made.positions, Batch()),),
        "dtype": made.choose(DType.I32, DType.F32),
    }


def _eye(made: RandomGraph, operation: Operation) -> Made:
    return [], {"rows": made.positions, "offset": made.choose(0, 1, -1)}


def _one_hot(made: RandomGraph, operation: Operation) -> Made:
    indices = made.pick(lambda type: type.dtype.is_integer)
    axis = int(made.generator.integers(-1, indices.type.rank))
    return [indices], {"depth": made.choose(2, made.positions), "axis": axis}


def _take(made: RandomGraph, operation: Operation) -> Made:
    x, indices = made.pick(lambda type: type.rank > 0), made.index()
    return [x, indices], {"axis": int(made.generator.integers(x.type.rank))}


def _take_along(made: RandomGraph, operation: Operation) -> Made:
    indices = made.index(lambda type: type.rank > 0)
    axis = int(made.generator.integers(indices.type.rank))

    def fits(type: TensorType) -> bool:
        shape = indices.type.shape
        return type.rank == len(shape) and all(
            a == b for i, (a, b) in enumerate(zip(type.shape, shape, strict=True)) if i != axis
        )

    x = made.pick(fits)
    return [x, indices], {"axis": axis}


def _gather_nd(made: RandomGraph, operation: Operation) -> Made:
    indices = made.index(lambda type: type.rank > 0 and type.shape[-1] in (1, 2))
    shared = made.choose(0, 0, 1)
    x = made.pick(lambda type: type.rank > shared)
    return [x, indices], {"batch-dims": shared}


def _scatter_add(made: RandomGraph, operation: Operation) -> Made:
    indices = made.index(lambda type: type.rank > 0 and type.shape[-1] in (1, 2))
    shared = made.choose(0, 0, 1)
    x = made.pick(lambda type: type.rank > shared and type.dtype is DType.F32)
    count = indices.type.shape[-1]
    assert isinstance(count, int)
    shape = (*indices.type.shape[:-1], *x.type.shape[shared + count :])
    updates = made.pick(lambda type: type.dtype is DType.F32 and type.shape == shape)
    return [x, indices, updates], {"batch-dims": shared}


MOVES: dict[str, Recipe] = {
    "concat": _same_shape,
    "stack": _same_shape,
    "pad": _pad,
    "tile": _tile,
    "take": _take,
    "take-along": _take_along,
    "gather-nd": _gather_nd,
    "scatter-add": _scatter_add,
    "one-hot": _one_hot,
    "permute": _permute,
    "transpose": _swap,
    "slice": _slice,
    "split": _split,
    "broadcast-to": _broadcast,
    "unsqueeze": _expand,
    "squeeze": _squeeze,
    "constant": _constant,
    "iota": _iota,
    "eye": _eye,
}
