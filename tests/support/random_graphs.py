"""Random graphs over every operation, for the properties that passes and proofs must have.

A graph grows node by node: an operation, operands among the values that stand already, attributes
of their kinds; what the operation's rules refuse is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Graph, Node, Position, Value, make_node
from sexpgpu.export.graph.types import Array, Batch, Dimension, DType, TensorType, concrete
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.random_layers import LAYERS
from support.random_moves import MOVES
from support.random_plain import NothingFits, draw_plain, random_numbers

#: Every operation that a model run alone may have.
OPERATIONS = [name for name, operation in all_operations().items() if not operation.random]

#: Elements a value may have for one record, so that a graph is evaluated at once.
_LARGEST = 4096
_ATTEMPTS = 60
_POSITION = Position("random.sx", 1, 1)
#: Operations that hand whole numbers on as they are.
_MOVING = frozenset(
    "permute transpose reshape slice unsqueeze squeeze broadcast-to take flip roll constant split "
    "concat stack".split()
)


@dataclass
class RandomGraph:
    """A graph that grows; `positions` is the length of the axis of positions."""

    generator: np.random.Generator
    positions: int
    graph: Graph = field(default_factory=Graph)
    weights: dict[str, Array] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)

    def grow(self, names: Sequence[str], count: int) -> None:
        """Adds `count` nodes of the operations named, or fewer where none fits."""
        for _ in range(count):
            for _ in range(_ATTEMPTS):
                if self.attempt(str(self.generator.choice(names))) is not None:
                    break

    def attempt(self, name: str) -> Node | None:
        """A node of the operation over random operands; None where they do not fit."""
        operation = all_operations()[name]
        defaults = {a.name: a.default for a in operation.signature.attributes}
        try:
            inputs, attributes = _RECIPES.get(name, draw_plain)(self, operation)
            node = make_node(
                operation, inputs, {**defaults, **attributes}, position=_POSITION, scope="part"
            )
        except (NothingFits, SexpgpuError):
            return None
        if any(np.prod(concrete(type.shape, 1)) > _LARGEST for type in node.result_types):
            return None
        if any(type.rank > 5 for type in node.result_types):
            return None
        self.graph.nodes.append(node)
        self.values += node.results
        return node

    def body(self, inputs: Sequence[Value]) -> RandomGraph:
        """A graph over these inputs, for the body of a scan."""
        graph = Graph(inputs=list(inputs))
        return RandomGraph(self.generator, self.positions, graph, values=list(inputs))

    def feeds(self, batch: int) -> dict[str, Array]:
        """Inputs for a number of records, each from the same few numbers as weights are."""
        return {
            value.name: random_numbers(
                self.generator, value.type.dtype, concrete(value.type.shape, batch)
            )
            for value in self.graph.inputs
        }

    def add_input(self, name: str, dtype: DType, *shape: Dimension) -> Value:
        value = Value(TensorType(dtype, shape), name=name)
        self.graph.inputs.append(value)
        self.values.append(value)
        return value

    def add_weight(self, path: str, dtype: DType, *shape: int) -> Value:
        value = Value(TensorType(dtype, shape), name=path)
        self.graph.weights[path] = value
        self.weights[path] = random_numbers(self.generator, dtype, shape)
        self.values.append(value)
        return value

    def pick(self, fits: Callable[[TensorType], bool] = lambda type: True) -> Value:
        """One of the values that fit; the younger the likelier."""
        return self.one_of([value for value in self.values if fits(value.type)])

    def index(self, fits: Callable[[TensorType], bool] = lambda type: True) -> Value:
        """Whole numbers that are in the range of every axis: they were not computed."""
        whole = [value for value in self.values if value.type.dtype.is_integer]
        return self.one_of([value for value in whole if _is_index(value) and fits(value.type)])

    def one_of(self, values: Sequence[Value]) -> Value:
        if not values:
            raise NothingFits
        place = int(len(values) * self.generator.random() ** 0.6)
        return values[min(place, len(values) - 1)]

    def chance(self, share: float) -> bool:
        return bool(self.generator.random() < share)

    def choose(self, *choices: Any) -> Any:
        return choices[int(self.generator.integers(len(choices)))]


def random_graph(seed: int) -> RandomGraph:
    """Inputs and weights of every dtype, with an axis of positions; no nodes yet."""
    generator = np.random.default_rng(seed)
    positions, width = [(5, 4), (5, 4), (2, 4), (4, 4), (3, 2), (6, 3)][int(generator.integers(6))]
    made = RandomGraph(generator, positions)
    b = Batch()
    made.add_input("x", DType.F32, b, positions, width)
    made.add_input("y", DType.F32, b, positions, width)
    made.add_input("tokens", DType.I32, b, positions)
    made.add_input("seen", DType.BOOL, b, positions)
    made.add_input("wide", DType.F64, b, positions, width)
    made.add_input("half", DType.BF16, b, positions, width)
    made.add_input("heads", DType.F32, b, 2, positions, width)
    made.add_input("record", DType.F32, b, width)
    made.add_weight("table", DType.F32, positions, width)
    made.add_weight("square", DType.F32, width, width)
    made.add_weight("mixing", DType.F32, positions, positions)
    made.add_weight("scale", DType.F32, width)
    made.add_weight("column", DType.F32, positions, 1)
    made.add_weight("counts", DType.I64, positions)
    made.add_input("places", DType.I32, b, positions, 1)
    return made


def _is_index(value: Value) -> bool:
    """Whether the numbers are an input's or a weight's, which are 0 or 1."""
    node = value.node
    if node is None:
        return True
    return node.operation.name in _MOVING and all(_is_index(v) for v in node.inputs)


_RECIPES = {**MOVES, **LAYERS}
