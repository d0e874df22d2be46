"""Where an axis goes through a graph, over operations whose axis rules are given outright."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sexpgpu.export.graph.axes import Mixed, State, join, trace_axes
from sexpgpu.export.graph.graph import Graph, Node, Value, make_node
from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.operations.operation import (
    UNREAD,
    WHOLE,
    Apart,
    Causal,
    Fate,
    Operation,
    all_operations,
)
from sexpgpu.export.operations.signature import Operand, signature

B = Batch()


class Ruled(Operation):
    """Results of given shapes, and the fate of each operand's axis from a table."""

    name = "ruled"
    family = "test"
    signature = signature(Operand("x", variadic=True))
    example = ("", "")

    def __init__(
        self,
        shapes: Sequence[tuple[Any, ...]],
        fates: dict[tuple[int, int], Sequence[Fate]],
        varies: frozenset[int] = frozenset(),
    ) -> None:
        self.shapes = shapes
        self.fates = fates
        self.varies = varies

    def infer(self, inputs: Any, attributes: Any) -> Sequence[TensorType]:
        return [TensorType(DType.F32, shape) for shape in self.shapes]

    def evaluate(self, inputs: Any, attributes: Any) -> Any:
        raise NotImplementedError

    def lower(self, onnx: Any, inputs: Any, attributes: Any, results: Any) -> Any:
        raise NotImplementedError

    def axis_rule(
        self, operand: int, axis: int, inputs: Any, attributes: Any, results: Any
    ) -> Sequence[Fate]:
        return self.fates.get((operand, axis), [WHOLE] * len(self.shapes))

    def varies_along(self, attributes: Any, result: TensorType) -> frozenset[int]:
        return self.varies


def tensor(*shape: Any) -> Value:
    return Value(TensorType(DType.F32, shape), name="x")


def node(
    inputs: Sequence[Value],
    shape: tuple[Any, ...],
    fates: dict[tuple[int, int], Fate],
    varies: frozenset[int] = frozenset(),
) -> Node:
    """A node with one result."""
    table = {key: [fate] for key, fate in fates.items()}
    return make_node(Ruled([shape], table, varies), inputs, {})


def states(nodes: Sequence[Node], starts: dict[Value, State], **options: bool) -> list[State]:
    """The states of the nodes' first results."""
    made = {value for each in nodes for value in each.results}
    inputs = dict.fromkeys(v for each in nodes for v in each.inputs if v not in made)
    found = trace_axes(Graph(inputs=list(inputs), nodes=list(nodes)), starts, **options)
    return [found[each.results[0]] for each in nodes]


def test_an_axis_moves_with_the_operations_that_keep_it_apart() -> None:
    x = tensor(3, 5)
    turned = node([x], (5, 3), {(0, 0): Apart(1)})
    again = node([turned.results[0]], (7, 5, 3), {(0, 1): Apart(2)})
    assert states([turned, again], {x: Apart(0)}) == [Apart(1), Apart(2)]


def test_a_broadcast_sum_with_a_value_that_has_nothing_of_the_axis() -> None:
    x, y = tensor(3, 5), tensor(5)
    both = make_node(all_operations()["+"], [x, y], {})
    assert states([both], {x: Apart(0)}) == [Apart(0)]
    assert states([both], {}) == [None]
    assert states([both], {y: Apart(0)}) == [Apart(1)]


def test_the_first_operation_that_mixes_is_named_to_the_end() -> None:
    x, y = tensor(3, 5), tensor(5)
    kept = node([x], (3, 5), {(0, 0): Apart(0)})
    mixes = node([y, kept.results[0]], (5,), {})
    after = make_node(all_operations()["exp"], [mixes.results[0]], {})
    later = node([after.results[0]], (1,), {})
    blame = Mixed(mixes, 1)
    assert states([kept, mixes, after, later], {x: Apart(0)}) == [Apart(0), blame, blame, blame]


def test_operands_that_disagree_mix() -> None:
    x = tensor(3, 3)
    turned = node([x], (3, 3), {(0, 0): Apart(1)})
    both = make_node(all_operations()["+"], [x, turned.results[0]], {})
    assert states([turned, both], {x: Apart(0)}) == [Apart(1), Mixed(both, 1)]


def test_causal_order_is_followed_where_it_is_asked_for() -> None:
    x = tensor(3, 5)
    running = node([x], (5, 3), {(0, 0): Causal(1)})
    back = node([running.results[0]], (3, 5), {(0, 1): Apart(0)})
    both = make_node(all_operations()["+"], [back.results[0], x], {})
    blame = Mixed(running, 0)
    assert states([running, back, both], {x: Apart(0)}, causal=True) == [
        Causal(1),
        Causal(0),
        Causal(0),
    ]
    assert states([running, back, both], {x: Apart(0)}) == [blame, blame, blame]


def test_a_result_that_does_not_read_the_operand_has_nothing_of_it() -> None:
    x = tensor(3)
    split = make_node(Ruled([(3,), (1,)], {(0, 0): [Apart(0), UNREAD]}), [x], {})
    found = trace_axes(Graph(inputs=[x], nodes=[split]), {x: Apart(0)})
    assert [found[value] for value in split.results] == [Apart(0), None]


def test_values_alike_for_every_record_are_apart_along_the_batch() -> None:
    zeros = node([], (B, 4), {})
    counted = node([zeros.results[0]], (4,), {})
    assert states([zeros, counted], {}, batch=True) == [Apart(0), Mixed(counted, 0)]
    assert states([zeros, counted], {}) == [None, None]


def test_numbering_the_records_mixes_them() -> None:
    numbers = node([], (B,), {}, varies=frozenset({0}))
    assert states([numbers], {}, batch=True) == [Mixed(numbers, None)]
    positions = node([], (B, 5), {}, varies=frozenset({1}))
    assert states([positions], {}, batch=True) == [Apart(0)]


@pytest.mark.parametrize("shape", [(B, B), (5, B)])
def test_records_meet_where_the_batch_runs_along_another_axis_too(shape: tuple[Any, ...]) -> None:
    x = tensor(B, 4)
    wide = node([x], shape, {(0, 0): Apart(0)})
    assert states([wide], {x: Apart(0)}, batch=True) == [Mixed(wide, None)]


def test_a_multiple_of_the_batch_is_the_batch() -> None:
    x = tensor(B, 4)
    flat = node([x], (Batch(4),), {(0, 0): Apart(0)})
    assert states([flat], {x: Apart(0)}, batch=True) == [Apart(0)]


def test_joining_is_the_same_in_either_order() -> None:
    blame = Mixed(node([], (1,), {}), None)
    known: list[State] = [None, Apart(0), Causal(0), Causal(1), blame]
    for a in known:
        for b in known:
            assert join(a, b, blame) == join(b, a, blame)
    assert join(Apart(0), Causal(0), blame) == Causal(0)
