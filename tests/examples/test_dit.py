"""DiT: its noise is that of the paper's model, written in torch, on the same weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.export.initial import first_value
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from support.real import EXAMPLES, relative_difference
from support.recognised import Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")

SIZE, CHANNELS, PATCH, CLASSES, DIM, DEPTH, HEADS = 12, 3, 2, 7, 32, 2, 4
KNOBS = {
    "size": SIZE,
    "channels": CHANNELS,
    "patch": PATCH,
    "classes": CLASSES,
    "dim": DIM,
    "depth": DEPTH,
    "heads": HEADS,
}
NAMES = {
    "patches.conv": "x_embedder",
    "positions": "pos_embed",
    "time.mlp.up": "t_embedder.0",
    "time.mlp.down": "t_embedder.2",
    "class.w": "y_embedder.weight",
    "adaptive.out": "adaLN_modulation.1",
    "attention": "attn",
    "out": "proj",
    "up": "fc1",
    "down": "fc2",
    "final": "final_layer",
    "w": "weight",
    "b": "bias",
}


def positions() -> Array:
    """Columns and rows of the patches by sines and cosines, a vector at a time."""
    side, rows = SIZE // PATCH, []
    speeds = 10000.0 ** -(np.arange(DIM // 4) / (DIM // 4))
    for row in range(side):
        for column in range(side):
            parts = [f(place * speeds) for place in (column, row) for f in (np.sin, np.cos)]
            rows.append(np.concatenate(parts))
    return np.array(rows, np.float32)


def make_dit() -> Any:
    """After Peebles and Xie, figure 3 and section 3.2."""
    nn, functional = torch.nn, torch.nn.functional

    def normalised(x: Any, shift: Any, scale: Any) -> Any:
        x = functional.layer_norm(x, (DIM,), eps=1e-6)
        return x * (1 + scale[:, None]) + shift[:, None]

    def modulation(count: int) -> Any:
        return nn.Sequential(nn.SiLU(), nn.Linear(DIM, count * DIM))

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("q", "k", "v", "proj"):
                setattr(self, name, nn.Linear(DIM, DIM))

        def forward(self, x: Any) -> Any:
            q, k, v = (
                f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
            )
            y = functional.scaled_dot_product_attention(q, k, v)
            return self.proj(y.transpose(1, 2).flatten(2))

    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

        def forward(self, x: Any) -> Any:
            return self.fc2(functional.gelu(self.fc1(x), approximate="tanh"))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.mlp, self.adaLN_modulation = Attention(), Mlp(), modulation(6)

        def forward(self, x: Any, c: Any) -> Any:
            shift, scale, gate, *rest = self.adaLN_modulation(c).chunk(6, dim=1)
            x = x + gate[:, None] * self.attn(normalised(x, shift, scale))
            shift, scale, gate = rest
            return x + gate[:, None] * self.mlp(normalised(x, shift, scale))

    class Final(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(DIM, PATCH * PATCH * 2 * CHANNELS)
            self.adaLN_modulation = modulation(2)

        def forward(self, x: Any, c: Any) -> Any:
            return self.proj(normalised(x, *self.adaLN_modulation(c).chunk(2, dim=1)))

    class DiT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            side = SIZE // PATCH
            self.x_embedder = nn.Conv2d(CHANNELS, DIM, PATCH, PATCH)
            self.pos_embed = nn.Parameter(torch.zeros(side * side, DIM))
            self.t_embedder = nn.Sequential(nn.Linear(256, DIM), nn.SiLU(), nn.Linear(DIM, DIM))
            self.y_embedder = nn.Embedding(CLASSES + 1, DIM)
            self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
            self.final_layer = Final()

        def forward(self, x: Any, t: Any, y: Any) -> Any:
            x = self.x_embedder(x).flatten(2).transpose(1, 2) + self.pos_embed
            angles = t[:, None] * torch.exp(-math.log(10000) * torch.arange(128) / 128)
            c = self.t_embedder(torch.cat([angles.cos(), angles.sin()], -1)) + self.y_embedder(y)
            for block in self.blocks:
                x = block(x, c)
            side = SIZE // PATCH
            x = self.final_layer(x, c).reshape(-1, side, side, PATCH, PATCH, 2 * CHANNELS)
            return torch.einsum("nhwpqc->nchpwq", x).reshape(-1, 2 * CHANNELS, SIZE, SIZE)

    return DiT()


def test_noise_equals_torch(tmp_path: Path) -> None:
    ours = Recognised("dit", tmp_path, **KNOBS)
    ours.sharpen(4.0, "q.w", "k.w")
    # A table of vectors lies in torch as it does here.
    state = {**renamed(ours.weights, NAMES), "y_embedder.weight": ours.weights["class.w"]}
    theirs = load_weights(make_dit(), state)
    inputs = {**ours.inputs(4), "inputs.1": np.array([0, 3.5, 250, 999], np.float32)}
    inputs["inputs.2"] = np.array([0, CLASSES, 2, 2], np.int32)
    with torch.no_grad():
        expected = theirs(*map(torch.from_numpy, inputs.values())).numpy()
    assert relative_difference(ours.run(inputs)["output"], expected) < 1e-5
    ours.check_bf16(inputs)


def test_a_block_begins_as_the_identity_and_positions_as_waves() -> None:
    parameters = trace_alone(compile_program(EXAMPLES / "dit.sx", None, KNOBS)).parameters
    begins = {path: first_value(parameter, 0) for path, parameter in parameters.items()}
    np.testing.assert_allclose(begins["positions"], positions(), rtol=0, atol=1e-6)
    assert parameters["positions"].frozen
    zero = {path for path, array in begins.items() if path.endswith(".w") and not array.any()}
    assert zero == {
        *(f"blocks.{i}.adaptive.out.w" for i in range(DEPTH)),
        *("final.adaptive.out.w", "final.out.w"),
    }
