"""DLRM: how likely a click is equals what torch says, in the manner of the published code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from support.real import EXAMPLES, relative_difference
from support.recognised import Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")

SIZES, WIDTH = (7, 30, 11, 5), 6


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    knobs = {"sizes": SIZES, "bag": 3, "width": WIDTH, "bottom": (9, 8), "top": (10,)}
    return Recognised("dlrm", tmp_path_factory.mktemp("dlrm"), **knobs)


@pytest.fixture(scope="module")
def inputs(ours: Recognised) -> dict[str, Array]:
    """Each category over all its values, and bags of every size."""
    inputs, generator = ours.inputs(6), np.random.default_rng(1)
    for number, size in enumerate(SIZES):
        inputs["inputs.1"][:, number] = generator.integers(0, size, (6, 3))
    inputs["inputs.2"][0] = False
    inputs["inputs.2"][1] = True
    return inputs


class Published(torch.nn.Module):  # type: ignore[misc]
    """The network of facebookresearch/dlrm with its dot interaction, without an offset."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        layers: list[Any] = []
        for narrow, wide in ((13, 9), (9, 8), (8, WIDTH)):
            layers += [nn.Linear(narrow, wide), nn.ReLU()]
        self.bot_l = nn.Sequential(*layers)
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(size, WIDTH, mode="sum") for size in SIZES)
        pairs = len(SIZES) * (len(SIZES) + 1) // 2
        self.top_l = nn.Sequential(
            nn.Linear(WIDTH + pairs, 10), nn.ReLU(), nn.Linear(10, 1), nn.Sigmoid()
        )

    def forward(self, dense: Any, categories: Any, present: Any) -> Any:
        x = self.bot_l(dense)
        bags = [
            # a bag is the run of values from an offset on
            table(
                torch.cat([row[kept] for row, kept in zip(values, real, strict=True)]),
                torch.cat([torch.zeros(1, dtype=torch.long), real.sum(1).cumsum(0)[:-1]]),
            )
            for table, values, real in zip(
                self.emb_l, categories.unbind(1), present.unbind(1), strict=True
            )
        ]
        stacked = torch.stack([x, *bags], 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        rows, columns = torch.tril_indices(len(SIZES) + 1, len(SIZES) + 1, offset=-1)
        return self.top_l(torch.cat([x, products[:, rows, columns]], 1)).squeeze(1)


@pytest.fixture(scope="module")
def theirs(ours: Recognised) -> Any:
    names = {f"top.layers.{i}": f"top_l.{2 * i}" for i in range(2)}
    names |= {f"bottom.layers.{i}": f"bot_l.{2 * i}" for i in range(3)}
    names |= {"w": "weight", "b": "bias"}
    tables = {
        path.replace("tables", "emb_l").replace(".w", ".weight"): array
        for path, array in ours.weights.items()
        if path.startswith("tables")
    }
    rest = {path: array for path, array in ours.weights.items() if not path.startswith("tables")}
    return load_weights(Published(), renamed(rest, names) | tables)


def test_clicks_equal_torch(ours: Recognised, theirs: Any, inputs: dict[str, Array]) -> None:
    dense, categories, present = (torch.from_numpy(array) for array in inputs.values())
    with torch.no_grad():
        expected = theirs(dense, categories.long(), present).numpy()
    found = ours.run(inputs)["output"]
    assert np.ptp(found) > 1e-3
    assert relative_difference(found, expected) < 1e-5


def test_in_bf16(ours: Recognised, inputs: dict[str, Array]) -> None:
    ours.check_bf16(inputs)


def test_published_size() -> None:
    """540 million numbers, as the paper's benchmark on the data of Criteo has them."""
    model = trace_alone(compile_program(EXAMPLES / "dlrm.sx", "criteo"))
    assert sum(parameter.elements for parameter in model.parameters.values()) == 540_677_217
