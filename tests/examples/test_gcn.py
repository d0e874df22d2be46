"""The graph convolutional network: its logits are those of torch, an edge at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.real import relative_difference
from support.recognised import Recognised

torch = pytest.importorskip("torch")

NODES, EDGES, GRAPHS = 11, 23, 3


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    knobs = {"nodes": NODES, "edges": EDGES, "features": 9, "hidden": 8, "classes": 5}
    return Recognised("gcn", tmp_path_factory.mktemp("gcn"), **knobs)


@pytest.fixture(scope="module")
def inputs(ours: Recognised) -> dict[str, Array]:
    """Graphs of unequal sizes, with an edge from a node to itself, two alike, and lone nodes."""
    inputs = ours.inputs(GRAPHS)
    inputs["inputs.1"][:, :, 0] = 4
    inputs["inputs.1"][:, :, 2] = inputs["inputs.1"][:, :, 1]
    inputs["inputs.2"] = np.arange(EDGES) < np.array([[EDGES], [17], [0]])
    return inputs


def convolve(x: Any, edges: Any, w: Array, b: Array) -> Any:
    """The layer for one graph: Σ over edges j → i, and i → i, of x_j w / √(d_i d_j), and b."""
    loops = torch.arange(NODES)
    sources, targets = torch.cat([edges, torch.stack([loops, loops])], 1)
    degrees = torch.zeros(NODES).index_add(0, targets, torch.ones(len(targets)))
    scale = (degrees[sources] * degrees[targets]) ** -0.5
    messages = (x @ torch.from_numpy(w))[sources] * scale[:, None]
    return torch.zeros(NODES, w.shape[1]).index_add(0, targets, messages) + torch.from_numpy(b)


def test_logits_equal_torch(ours: Recognised, inputs: dict[str, Array]) -> None:
    found = ours.run(inputs)["output"]
    w = ours.weights
    for graph in range(GRAPHS):
        x, edges, real = (torch.from_numpy(array[graph]) for array in inputs.values())
        edges = edges[:, real].long()
        x = torch.relu(convolve(x, edges, w["first-layer.linear.w"], w["first-layer.b"]))
        x = convolve(x, edges, w["last-layer.linear.w"], w["last-layer.b"])
        assert relative_difference(found[graph], x.numpy()) < 1e-5


def test_in_bf16(ours: Recognised, inputs: dict[str, Array]) -> None:
    ours.check_bf16(inputs)
