"""Every sample computed for one position alone, along each axis of its result that is apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from sexpgpu.export.graph.graph import Graph, Node, Value, make_node
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array, Batch, DType
from sexpgpu.export.operations.operation import Apart, all_operations
from sexpgpu.export.passes.at import gather_at
from support.samples import RECORDS, Sample, samples_of

#: Families whose results are moved, or computed element by element: they keep their bits.
EXACT = {"elementwise", "shape", "index", "order", "creation"}
#: Operations that are always computed whole, and why.
ALWAYS_WHOLE = {
    "constant": "it has no operand",
    "full": "it has no operand",
    "iota": "it has no operand",
    "eye": "it has no operand",
    "random-normal": "other positions would be drawn other numbers",
    "random-uniform": "other positions would be drawn other numbers",
    "dropout": "other positions would be drawn other numbers",
    "lstm": "a position needs all before it",
    "gru": "a position needs all before it",
    "scan": "the types of the body speak of every axis",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Results of a node, of which some positions of one axis are wanted."""

    node: Node
    results: tuple[Value, ...]
    axis: int

    @property
    def length(self) -> int:
        length = self.results[0].type.shape[self.axis]
        assert isinstance(length, int)
        return length

    def graph(self) -> Graph:
        """The node, and its results with the batch first and then the axis, as `--at` needs it."""
        nodes = [self.node]
        outputs: dict[str, Value] = {}
        for value in self.results:
            batch = value.type.shape.index(Batch())
            rest = [i for i in range(value.type.rank) if i not in (batch, self.axis)]
            order = (batch, self.axis, *rest)
            if order != tuple(range(value.type.rank)):
                nodes.append(make_node(all_operations()["permute"], [value], {"axes": order}))
                value = nodes[-1].results[0]
            outputs[f"y{value.index}.{len(outputs)}"] = value
        return Graph(inputs=list(self.node.inputs), nodes=nodes, outputs=outputs)

    def is_restricted_in(self, graph: Graph) -> bool:
        return self.node not in graph.nodes


def _rows(node: Node) -> Iterator[Rows]:
    """The axes of each result, and of all of them, to which an axis of some operand is apart."""
    choices: list[tuple[Value, ...]] = [(value,) for value in node.results]
    if len(node.results) > 1:
        choices.append(node.results)
    for results in choices:
        for axis, length in enumerate(results[0].type.shape):
            alike = all(
                value.type.rank > axis
                and value.type.shape[axis] == length
                and value.type.shape.count(Batch()) == 1
                for value in results
            )
            if alike and isinstance(length, int) and length and _is_apart(node, results, axis):
                yield Rows(node, results, axis)


def _is_apart(node: Node, results: Sequence[Value], axis: int) -> bool:
    types = node.input_types
    for operand, type in enumerate(types):
        for candidate in range(type.rank):
            fates = node.operation.axis_rule(
                operand, candidate, types, node.attributes, node.result_types
            )
            if all(fates[value.index] == Apart(axis) for value in results):
                return True
    return False


@pytest.mark.parametrize("name", list(all_operations()))
def test_a_position_alone_is_that_of_the_whole(name: str) -> None:
    restricted = 0
    for sample in samples_of(name):
        dtype = DType.F32 if DType.F32 in sample.dtypes else sample.dtypes[0]
        for rows in _rows(sample.node(dtype)):
            graph = rows.graph()
            moved = gather_at(graph)
            restricted += rows.is_restricted_in(moved)
            _check(sample, dtype, rows, graph, moved)
    assert (restricted == 0) == (name in ALWAYS_WHOLE)


def _check(sample: Sample, dtype: DType, rows: Rows, graph: Graph, moved: Graph) -> None:
    feeds = {f"x{i}": array for i, array in enumerate(sample.arrays(dtype))}
    whole = evaluate(graph, feeds, {}, RECORDS)
    last = rows.length - 1
    middle = int(np.random.default_rng(rows.axis).integers(rows.length))
    for at in ((0, 0, 0), (last, last, last), (last, middle, 0)):
        places = np.array(at, np.int32)
        found = evaluate(moved, {**feeds, "at": places}, {}, RECORDS)
        for name, full in whole.items():
            want = full[np.arange(RECORDS), places][:, None]
            what = f"{sample} along axis {rows.axis} at {at}"
            assert_row(found[name], want, sample.operation.family in EXACT, what)


def assert_row(found: Array, want: Array, exact: bool, what: str) -> None:
    assert (found.dtype, found.shape) == (want.dtype, want.shape), what
    if exact:
        assert found.tobytes() == want.tobytes(), what
    else:
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6, err_msg=what)
