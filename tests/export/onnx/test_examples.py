"""Inputs to try a model on."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Batch, DType, Shape, TensorType, concrete
from sexpgpu.export.onnx.examples import APART, INDICES, NUMBERS, TOGETHER, Examples
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.export.passes.at import gather_at
from support.programs import GPT, traced


def graph_of(*dtypes: DType) -> Graph:
    inputs = [
        Value(TensorType(dtype, (Batch(), 300)), name=f"x{i}") for i, dtype in enumerate(dtypes)
    ]
    return Graph(inputs=inputs, outputs={"y": inputs[0]})


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("kinds", [*TOGETHER, APART])
def test_inputs_are_of_their_types(dtype: DType, kinds: tuple[str, ...]) -> None:
    array = Examples(graph_of(dtype)).draw(kinds)["x0"]
    assert (array.dtype, array.shape) == (dtype.numpy, (len(kinds), 300))
    for row, kind in zip(array, kinds, strict=True):
        if kind != "random":
            assert len(np.unique(row)) == 1
        elif dtype is DType.BOOL:
            assert {*row.tolist()} == {True, False}
        else:
            assert row.astype(np.float64).min() < 0 < row.astype(np.float64).max()


def test_records_of_a_call_are_as_they_are_alone() -> None:
    examples = Examples(graph_of(*DType))
    together = examples.draw(("random", "low", "high"))
    for number, kind in ((1, "low"), (2, "high")):
        alone = examples.draw((kind,))
        for name, array in together.items():
            np.testing.assert_array_equal(array[number : number + 1], alone[name])
    # The random ones of several calls are others.
    assert not np.array_equal(together["x0"][:1], examples.draw(("random",))["x0"])


@pytest.mark.parametrize("dtype", DType)
def test_records_that_do_not_meet_share_a_call(dtype: DType) -> None:
    examples = Examples(graph_of(dtype, DType.I32))
    kinds = {DType.BOOL: APART, DType.I32: INDICES, DType.I64: INDICES}.get(dtype, NUMBERS)
    assert examples.calls(apart=True) == (kinds,)
    assert examples.calls(apart=False) == TOGETHER


def test_ends_are_low_and_high_ones_in_one_record() -> None:
    examples = Examples(gather_at(traced(GPT)[0]))
    tokens = examples.draw(("random", "ends"))["inputs"]
    assert {*tokens[1].tolist()} == {-40, 39}
    assert len({*tokens[0].tolist()}) > 2


def test_the_same_is_drawn_every_time() -> None:
    graph = graph_of(*DType)
    first, second = (Examples(graph).draw(("random",) * 3) for _ in range(2))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_what_indexes_an_axis_stays_inside() -> None:
    examples = Examples(gather_at(traced(GPT)[0]))
    tokens = examples.draw(("random",) * 3)["inputs"]
    assert tokens.min() >= 0
    assert 30 < tokens.max() < 40
    high, low = examples.draw(("high",)), examples.draw(("low",))
    assert ({*high["inputs"].flat}, {*high["at"].flat}) == ({39}, {11})
    assert ({*low["inputs"].flat}, {*low["at"].flat}) == ({-40}, {-12})
    assert examples.narrow()
    low = examples.draw(("low",))
    assert ({*low["inputs"].flat}, {*low["at"].flat}) == ({0}, {0})


@pytest.mark.parametrize("shape", [(Batch(), 2), (2, Batch()), (3, Batch(2)), (Batch(2), 1)])
def test_limits_are_of_every_record_wherever_the_batch_is(shape: Shape) -> None:
    tokens = Value(TensorType(DType.I32, shape), name="tokens")
    table = Value(TensorType(DType.F32, (7, 4)), name="table")
    node = make_node(all_operations()["take"], [table, tokens], {"axis": 0})
    examples = Examples(Graph([tokens, table], nodes=[node], outputs={"rows": node.results[0]}))
    drawn = examples.draw(("random",) * 3)["tokens"]
    assert drawn.shape == concrete(shape, 3)
    assert 0 <= drawn.min() <= drawn.max() < 7


def test_other_whole_numbers_come_from_narrower_ranges_in_turn() -> None:
    examples = Examples(graph_of(DType.I64))
    ends = []
    while True:
        random = examples.draw(("random",) * 3)["x0"]
        ends.append((examples.draw(("low",))["x0"][0, 0], examples.draw(("high",))["x0"][0, 0]))
        assert ends[-1][0] <= random.min() <= random.max() <= ends[-1][1]
        if not examples.narrow():
            break
    assert ends == [(-100, 99), (0, 99), (0, 9), (0, 1), (0, 0)]
    # Past the last range it stays there.
    assert {*examples.draw(("random",))["x0"].flat} == {0}
