"""Representative calls of every operation, as data that any test may run over.

A sample says what an operation is given: its tensors by shape and kind, with the batch where it
runs, and its attributes.  From that come arrays for any number of records, and a node whose batch
is symbolic or a number.  The calls themselves stand in `support.calls`, a module for each family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from sexpgpu.export.graph.graph import Graph, Node, Value, make_node
from sexpgpu.export.graph.types import (
    Array,
    Batch,
    Dimension,
    DType,
    Shape,
    TensorType,
    concrete,
    format_shape,
)
from sexpgpu.export.operations.operation import Operation, all_operations
from sexpgpu.export.operations.signature import GIVEN, show_attribute

B = Batch()
#: How many records a call of a sample has, unless a test asks for another number.
RECORDS = 3

Fill: TypeAlias = Callable[[np.random.Generator, tuple[int, ...], DType], Array]


@dataclass(frozen=True, slots=True)
class Tensor:
    """What an operand is: its shape, what fills it, and its dtype where it is not the sample's.

    `free` says that any value may stand in it, so that no index goes out of its range.
    """

    shape: Shape
    fill: Fill
    dtype: DType | None = None
    free: bool = False

    @property
    def batch_axis(self) -> int | None:
        axes = [axis for axis, d in enumerate(self.shape) if isinstance(d, Batch)]
        assert len(axes) < 2
        return axes[0] if axes else None

    def draw(self, generator: np.random.Generator, dtype: DType, records: int) -> Array:
        dtype = self.dtype or dtype
        array = self.fill(generator, concrete(self.shape, records), dtype)
        return np.asarray(array).astype(dtype.numpy)

    def type(self, dtype: DType, batch: Dimension) -> TensorType:
        return TensorType(self.dtype or dtype, with_batch(self.shape, batch))


def with_batch(shape: Sequence[Dimension], batch: Dimension) -> Shape:
    """The shape with the batch as it is, or as a number of records."""
    return tuple(shape) if isinstance(batch, Batch) else concrete(shape, batch)


def numbers(*shape: Dimension) -> Tensor:
    """Numbers of both signs, between -2 and 2, or a few whole ones."""

    def fill(generator: np.random.Generator, size: tuple[int, ...], dtype: DType) -> Array:
        if dtype is DType.BOOL:
            return np.asarray(generator.random(size) < 0.5)
        if dtype.is_integer:
            return generator.integers(-9, 10, size)
        return np.round(generator.uniform(-2, 2, size), 2)

    return Tensor(shape, fill, free=True)


def positive(*shape: Dimension) -> Tensor:
    """Numbers between 0.1 and 2."""
    return Tensor(shape, lambda g, size, dtype: np.round(g.uniform(0.1, 2, size), 2))


def ties(*shape: Dimension) -> Tensor:
    """Numbers of which many are equal."""
    return Tensor(shape, lambda g, size, dtype: g.integers(-2, 3, size), free=True)


def edges(*shape: Dimension) -> Tensor:
    """NaN, infinities and zeros of both signs among numbers, or the extremes of whole numbers."""

    def fill(generator: np.random.Generator, size: tuple[int, ...], dtype: DType) -> Array:
        array = numbers(*size).draw(generator, dtype, 1)
        extremes: list[Any] = [np.nan, np.inf, -np.inf, -0.0, 0.0]
        if dtype.is_integer:
            extremes = [np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max]
        if dtype is DType.BOOL:
            return array
        chosen = generator.choice(np.asarray(extremes, dtype.numpy), size)
        return np.where(generator.random(size) < 0.4, chosen, array)

    return Tensor(shape, fill, free=True)


def booleans(*shape: Dimension) -> Tensor:
    """True and false, whatever the sample's dtype is."""
    return Tensor(shape, lambda g, size, dtype: g.random(size) < 0.6, DType.BOOL, free=True)


def whole(least: int, end: int, *shape: Dimension, dtype: DType | None = DType.I32) -> Tensor:
    """Whole numbers from `least` up to but without `end`: indices, counts, classes, positions."""
    return Tensor(shape, lambda g, size, _: g.integers(least, end, size), dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One call of an operation, for each of some dtypes.

    Attributes may name the batch, and may be functions of the sample's dtype and the batch.
    """

    operation: Operation
    tensors: tuple[Tensor, ...]
    attributes: Mapping[str, Any]
    dtypes: tuple[DType, ...]

    def __str__(self) -> str:
        words = [format_shape(tensor.shape) for tensor in self.tensors]
        for name, value in self.attributes.items():
            shown = "…" if callable(value) else show_attribute(value)
            words.append(f":{name} {shown}")
        return f"({' '.join([self.operation.name, *words])})"

    @property
    def batch_axes(self) -> list[int | None]:
        """For each tensor the axis along which the batch runs."""
        return [tensor.batch_axis for tensor in self.tensors]

    @property
    def has_batch(self) -> bool:
        return any(axis is not None for axis in self.batch_axes) or any(
            isinstance(d, Batch)
            for value in self.attributes.values()
            for d in (value if isinstance(value, tuple) else ())
        )

    def arrays(self, dtype: DType, records: int = RECORDS, seed: int = 0) -> list[Array]:
        """The operands for some records, the same for the same seed."""
        generator = np.random.default_rng([seed, records])
        return [tensor.draw(generator, dtype, records) for tensor in self.tensors]

    def node(self, dtype: DType, batch: Dimension = B) -> Node:
        """The call with its batch symbolic, or with a number of records."""
        inputs = [
            Value(tensor.type(dtype, batch), name=f"x{index}")
            for index, tensor in enumerate(self.tensors)
        ]
        defaults = {a.name: a.default for a in self.operation.signature.attributes}
        given = {name: _resolve(v, dtype, batch) for name, v in self.attributes.items()}
        assert set(given) <= set(defaults), f"{self} has no such attribute"
        return make_node(self.operation, inputs, defaults | given)

    def graph(self, dtype: DType, batch: Dimension = B) -> Graph:
        """A graph of the call alone: inputs x0, x1, …, outputs y0, y1, …."""
        return graph_of(self.node(dtype, batch))


def graph_of(node: Node) -> Graph:
    outputs = {f"y{index}": value for index, value in enumerate(node.results)}
    return Graph(inputs=list(node.inputs), nodes=[node], outputs=outputs)


def _resolve(value: Any, dtype: DType, batch: Dimension) -> Any:
    if callable(value):
        return value(dtype, batch)
    if isinstance(value, tuple) and any(isinstance(d, Batch) for d in value):
        return with_batch(value, batch)
    return value


def own_dtype(dtype: DType, batch: Dimension) -> DType:
    """An attribute that is the sample's dtype."""
    return dtype


def call(
    name: str,
    *tensors: Tensor,
    dtypes: Sequence[DType] | None = None,
    given: Sequence[str] = (),
    **attributes: Any,
) -> Sample:
    """A sample; attributes' names are written with `_` for `-`, and after a word of Python.

    Its dtypes are all that the first operand which has the sample's dtype may have.
    """
    operation = all_operations()[name]
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    if given:
        named[GIVEN] = tuple(given)
    if dtypes is None:
        present = operation.signature.present(given, len(tensors))
        assert present is not None, name
        own = [o for o, t in zip(present, tensors, strict=True) if t.dtype is None]
        dtypes = [d for d in DType if d in own[0].dtypes] if own else [DType.F32]
    return Sample(operation, tensors, named, tuple(dtypes))


@cache
def all_samples() -> tuple[Sample, ...]:
    """The samples of every family."""
    from support.calls import (
        arrangement,
        creation,
        elementwise,
        indexing,
        products,
        recurrence,
        reduction,
        windows,
    )

    families = (
        elementwise,
        arrangement,
        indexing,
        reduction,
        products,
        windows,
        recurrence,
        creation,
    )
    return tuple(sample for family in families for sample in family.samples())


@cache
def samples_of(name: str, dtype: DType | None = None) -> tuple[Sample, ...]:
    """The samples of one operation, and of one dtype where it is given."""
    return tuple(
        sample
        for sample in all_samples()
        if sample.operation.name == name and (dtype is None or dtype in sample.dtypes)
    )


def cases() -> Iterator[tuple[str, DType]]:
    """Every operation with every dtype that a sample of it has."""
    for name in all_operations():
        for dtype in DType:
            if samples_of(name, dtype):
                yield name, dtype
