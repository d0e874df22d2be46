"""How a random graph draws a node of an operation that needs nothing of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.graph.types import Array, Batch, Dimension, DType, TensorType
from sexpgpu.export.operations.operation import Operation
from sexpgpu.export.operations.signature import GIVEN, Attribute, Kind

if TYPE_CHECKING:
    from support.random_graphs import RandomGraph

#: Operands and attributes.
Made = tuple[list[Value], dict[str, Any]]
Recipe = Callable[["RandomGraph", Operation], Made]


class NothingFits(Exception):
    """No value of the graph is what an operand must be."""


def random_numbers(generator: np.random.Generator, dtype: DType, shape: Sequence[int]) -> Array:
    """Few whole numbers, all in the range of every axis, or floats that seldom tie."""
    if dtype is DType.BOOL:
        return np.asarray(generator.random(shape) < 0.5)
    if dtype.is_integer:
        return np.asarray(generator.integers(0, 2, shape)).astype(dtype.numpy)
    return np.asarray(generator.normal(0, 1, shape)).astype(dtype.numpy)


def draw_plain(made: RandomGraph, operation: Operation) -> Made:
    """Operands of one dtype that are likely to broadcast, attributes of their kinds."""
    inputs: list[Value] = []
    given: list[str] = []
    groups: dict[str, DType] = {}
    for operand in operation.signature.operands:
        if operand.optional and made.chance(0.6):
            continue
        wanted = groups.get(operand.group)

        def fits(type: TensorType, operand: Any = operand, wanted: Any = wanted) -> bool:
            return type.dtype in operand.dtypes and wanted in (None, type.dtype)

        for _ in range(int(made.generator.integers(1, 4)) if operand.variadic else 1):
            value = _like(made, inputs[0].type, fits) if inputs else made.pick(fits)
            inputs.append(value)
            if operand.group:
                groups.setdefault(operand.group, value.type.dtype)
        if operand.optional:
            given.append(operand.name)
    first = inputs[0].type if inputs else None
    attributes = {
        attribute.name: _attribute(made, attribute, first)
        for attribute in operation.signature.attributes
        if attribute.required or made.chance(0.7)
    }
    if GIVEN in [a.name for a in operation.signature.attributes]:
        attributes[GIVEN] = tuple(given)
    return inputs, attributes


def _like(made: RandomGraph, first: TensorType, fits: Callable[[TensorType], bool]) -> Value:
    """A value that broadcasts with the first, or of its shape but for an axis; now and then any."""

    def meets(type: TensorType) -> bool:
        pairs = zip(reversed(type.shape), reversed(first.shape), strict=False)
        return fits(type) and all(a == b or 1 in (a, b) for a, b in pairs)

    near = [value for value in made.values if meets(value.type)]
    return made.one_of(near) if near and made.chance(0.8) else made.pick(fits)


def _attribute(made: RandomGraph, attribute: Attribute, first: TensorType | None) -> Any:
    generator, rank = made.generator, first.rank if first else 2
    small = int(generator.integers(-1, 4))
    match attribute.kind:
        case Kind.INTEGER if attribute.name == "axis":
            return int(generator.integers(-rank, max(rank, 1)))
        case Kind.INTEGERS if attribute.name in ("axis", "axes"):
            axes = generator.permutation(rank)[: int(generator.integers(0, rank + 1))]
            return tuple(int(axis) for axis in axes)
        case Kind.INTEGER:
            return small
        case Kind.INTEGERS:
            return tuple(int(n) for n in generator.integers(0, 3, int(generator.integers(1, 4))))
        case Kind.NUMBER:
            return float(made.choose(0.5, 1.0, 2.0, 1.5))
        case Kind.BOOLEAN:
            return bool(generator.random() < 0.5)
        case Kind.WORD:
            return made.choose(*attribute.choices) if attribute.name != "precision" else "f32"
        case Kind.DTYPE:
            return made.choose(*DType)
        case Kind.SHAPE:
            return _dimensions(made, first)
        case Kind.PADDING:
            return made.choose(0, 1, "same")
        case Kind.ARRAY:
            return random_numbers(generator, made.choose(*DType), (made.positions, 1))
    return attribute.default


def _dimensions(made: RandomGraph, first: TensorType | None) -> tuple[Dimension, ...]:
    """A shape: that of a value, or one of as many elements as `first` has."""
    other = made.pick()
    if first is None or made.chance(0.3):
        return other.type.shape
    shape = list(first.shape)
    for _ in range(int(made.generator.integers(1, 4))):
        if len(shape) > 1 and made.chance(0.5):
            place = int(made.generator.integers(len(shape) - 1))
            a, b = shape[place : place + 2]
            if isinstance(a, int) and isinstance(b, int):
                shape[place : place + 2] = [a * b]
            elif isinstance(a, Batch) and isinstance(b, int):
                shape[place : place + 2] = [Batch(a.multiple * b)] if b else [0]
        elif shape:
            place = int(made.generator.integers(len(shape)))
            length = shape[place]
            factor = made.choose(1, 2, 3, made.positions)
            if isinstance(length, int) and length % factor == 0:
                shape[place : place + 1] = made.choose(
                    [factor, length // factor], [length // factor, factor]
                )
            elif isinstance(length, Batch) and length.multiple % factor == 0:
                shape[place : place + 1] = [Batch(length.multiple // factor), factor]
    return tuple(shape)
