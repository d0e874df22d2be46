"""Operations on shapes, indices and reductions computed for one position only (`--at`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array, Batch, DType
from sexpgpu.export.passes.at import gather_at
from support.arrays import random_array
from support.harness import single

B = Batch()
X = random_array(0, DType.F32, (3, 5, 6))
Y = random_array(1, DType.F32, (3, 5, 6))
TOKENS = np.abs(random_array(2, DType.I32, (3, 5))) % 5
PLACES = np.abs(random_array(3, DType.I32, (3, 5, 2, 1))) % 6

#: Operation, inputs, their batch axes, and attributes: results are [batch, 5, …], and their
#: positions are apart.
MOVES: list[tuple[str, list[Array], list[int | None], dict[str, Any]]] = [
    ("reshape", [X], [0], {"shape": (B, 5, 2, 3)}),
    ("reshape", [X.reshape(3, 5, 2, 3)], [0], {"shape": (B, 5, 6)}),
    ("transpose", [X.transpose(0, 2, 1).copy()], [0], {}),
    ("permute", [X.transpose(1, 0, 2).copy()], [1], {"axes": (1, 0, 2)}),
    ("broadcast-to", [X[:, :, :1].copy()], [0], {"shape": (B, 5, 4)}),
    ("squeeze", [X[:, None]], [0], {"axis": (1,)}),
    ("unsqueeze", [X], [0], {"axis": (2,)}),
    ("concat", [X, Y], [0, 0], {}),
    ("stack", [X, Y], [0, 0], {"axis": 2}),
    ("split", [X], [0], {"parts": (2,)}),
    ("slice", [X], [0], {"axis": 2, "from": 1, "to": 4}),
    ("flip", [X], [0], {}),
    ("roll", [X], [0], {"shift": (2,)}),
    ("shift", [X], [0], {"count": 2}),
    ("pad", [X], [0], {"before": (0, 0, 1), "mode": "edge"}),
    ("tile", [X], [0], {"repeats": (1, 1, 2)}),
    ("take", [X[0], TOKENS], [None, 0], {}),
    ("take", [X, np.array([0, 2])], [0], {"axis": 2}),
    ("take-along", [X, np.abs(PLACES[..., 0])], [0, 0], {}),
    ("gather-nd", [X, PLACES], [0, 0], {"batch-dims": 2}),
    ("scatter-add", [X, PLACES, Y[:, :, :2].copy()], [0, 0, 0], {"batch-dims": 2}),
    ("scatter-max", [X, PLACES, Y[:, :, :2].copy()], [0, 0, 0], {"batch-dims": 2}),
    ("one-hot", [TOKENS], [0], {"depth": 4}),
    ("sum", [X], [0], {"axis": (-1,)}),
    ("max", [X], [0], {"axis": (2,), "keep": True}),
    ("variance", [X], [0], {"axis": (2,), "correction": 1}),
    ("logsumexp", [X], [0], {"axis": (2,)}),
    ("norm", [X], [0], {"axis": (2,)}),
    ("argmax", [X], [0], {}),
    ("sort", [X], [0], {}),
    ("top-k", [X], [0], {"k": 2}),
    ("cumsum", [X], [0], {}),
]


@pytest.mark.parametrize(("name", "inputs", "axes", "attributes"), MOVES)
def test_one_position_is_computed_alone(
    name: str, inputs: list[Array], axes: list[int | None], attributes: dict[str, Any]
) -> None:
    graph, node = single(name, inputs, axes, **attributes)
    moved = gather_at(graph)
    feeds = {f"x{i}": array for i, array in enumerate(inputs)}
    at = np.array([4, 0, 2], np.int32)
    whole, rows = evaluate(graph, feeds, {}), evaluate(moved, {**feeds, "at": at}, {})
    for output, full in whole.items():
        want = np.stack([full[i, at[i]] for i in range(3)])[:, None]
        np.testing.assert_array_equal(rows[output], want)
    restricted = [n for n in moved.nodes if n.operation is node.operation and n is not node]
    assert any(n.results[0].type.shape[1] == 2 for n in restricted)
    assert node not in moved.nodes


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("flip", {"axis": (1,)}),
        ("cumsum", {"axis": 1}),
        ("sort", {"axis": 1}),
        ("scatter-add", {"batch-dims": 1}),
    ],
)
def test_what_mixes_positions_is_computed_whole(name: str, attributes: dict[str, Any]) -> None:
    inputs = [X]
    if name == "scatter-add":
        inputs = [X, TOKENS[..., None], Y]
    graph, node = single(name, inputs, [0] * len(inputs), **attributes)
    moved = gather_at(graph)
    assert node in moved.nodes
    feeds = {f"x{i}": array for i, array in enumerate(inputs)}
    rows = evaluate(moved, {**feeds, "at": np.array([4, 0, 2], np.int32)}, {})
    full = evaluate(graph, feeds, {})["y0"]
    np.testing.assert_array_equal(rows["y0"][:, 0], full[[0, 1, 2], [4, 0, 2]])
