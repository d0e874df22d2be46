"""The GPT in PyTorch, as nanoGPT has it, without anything of this project: a contender of
`train.py`.

    python train_torch.py FOLDER eager|compiled cpu|cuda

`train_turns.py` says what a contender does; FOLDER is what `train_gpt.prepare` wrote.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).split(width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self, sizes: Any) -> None:
        super().__init__()
        width = sizes["width"]
        self.tok = nn.Embedding(sizes["vocabulary"], width)
        self.pos = nn.Parameter(torch.empty(sizes["window"], width))
        self.blocks = nn.ModuleList(Block(width, sizes["heads"]) for _ in range(sizes["layers"]))
        self.norm = nn.LayerNorm(width, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.tok(inputs) + self.pos
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tok.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def load(self, path: Path) -> None:
        """The same first weights; those of queries, keys and values as one matrix."""
        with np.load(path) as stored:
            w = {name: torch.from_numpy(stored[name]) for name in stored}
        made = {"tok.weight": w["tok"], "pos": w["pos"], "norm.weight": w["norm.scale"]}
        for i in range(len(self.blocks)):
            of = f"blocks.{i}."
            made |= {
                of + "norm_1.weight": w[of + "norm-1.scale"],
                of + "qkv.weight": torch.cat([w[of + f"attention.{n}.w"] for n in "qkv"], 1).T,
                of + "out.weight": w[of + "attention.out.w"].T,
                of + "norm_2.weight": w[of + "norm-2.scale"],
                of + "up.weight": w[of + "mlp.up.w"].T,
                of + "down.weight": w[of + "mlp.down.w"].T,
            }
        self.load_state_dict(made)


def optimizer_of(model: nn.Module, sizes: Any) -> torch.optim.Optimizer:
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": sizes["decay"]},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = sizes["beta1"], sizes["beta2"]
    return torch.optim.AdamW(groups, sizes["rate"], betas, sizes["epsilon"], fused=True)


def rate_of(sizes: Any, step: int) -> float:
    """nanoGPT's: warm-up, then a cosine."""
    peak, warm_up = sizes["rate"], sizes["warm_up"]
    if step < warm_up:
        return float(peak * (step + 1) / (warm_up + 1))
    progress = min(1.0, (step - warm_up) / (sizes["fall"] - warm_up))
    left = 0.5 * (1 + math.cos(math.pi * progress))
    return float(peak * (sizes["final"] + (1 - sizes["final"]) * left))


def main() -> None:
    folder, mode, device = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    sizes = json.loads((folder / "sizes.json").read_text())
    batches = torch.from_numpy(np.load(folder / "batches.npy")).long()
    model = Gpt(sizes)
    model.load(folder / "weights.npz")
    model.to(device)
    optimizer = optimizer_of(model, sizes)
    forward: Any = torch.compile(model) if mode == "compiled" else model
    taken, losses = 0, []
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            for group in optimizer.param_groups:
                group["lr"] = rate_of(sizes, taken)
            loss = forward(batches[taken % len(batches)].to(device))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), sizes["clip"])
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            taken += 1
            if taken <= 5:
                losses.append(loss.detach())
        if device == "cuda":
            torch.cuda.synchronize()
        print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)
    end = {
        "losses": [float(loss) for loss in losses],
        "device_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else 0,
    }
    print(json.dumps(end), flush=True)


if __name__ == "__main__":
    main()
