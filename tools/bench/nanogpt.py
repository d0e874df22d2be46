"""nanoGPT's character model and training loop in PyTorch, which examples/shakespeare.sx is held to.

    python -m sexpgpu.tools.bench.nanogpt build/models/shakespeare/text.txt --json nanogpt.json

After Karpathy's nanoGPT, https://github.com/karpathy/nanoGPT: the model of `model.py`, the loop of
`train.py`, the data of `data/shakespeare_char/prepare.py`, and the setting that its README gives
for a CPU, over `config/train_shakespeare_char.py`.  Left out is what that setting does not use:
dropout, biases, several processes, half precision, gradient accumulation.  Besides nanoGPT's
estimate of the validation loss, the mean of random batches, it tells the loss over the whole
validation part, each token predicted once, as `sexpgpu evaluate` does.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

#: Batches of nanoGPT's estimate: `--eval_iters=20`.
_ESTIMATED = 20


@dataclass(frozen=True)
class Setting:
    """The README's for a CPU: a shape, and how it is trained."""

    window: int = 64
    batch: int = 12
    depth: int = 4
    heads: int = 4
    dim: int = 128
    steps: int = 2000
    warm_up: int = 100
    peak: float = 1e-3
    final: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    clip: float = 1.0

    def rate(self, step: int) -> float:
        """`get_lr`: a line up, half a cosine down; `--lr_decay_iters` is `--max_iters`."""
        if step < self.warm_up:
            return self.peak * (step + 1) / (self.warm_up + 1)
        progress = (step - self.warm_up) / (self.steps - self.warm_up)
        share = 0.5 * (1 + math.cos(math.pi * progress))
        return self.final + share * (self.peak - self.final)


class Attention(nn.Module):
    """Causal self-attention, its queries, keys and values out of one product."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.heads = setting.heads
        self.c_attn = nn.Linear(setting.dim, 3 * setting.dim, bias=False)
        self.c_proj = nn.Linear(setting.dim, setting.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, window, dim = x.shape
        q, k, v = (
            part.view(batch, window, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(dim, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, window, dim))


class Perceptron(nn.Module):
    """Four times as wide inside."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.c_fc = nn.Linear(setting.dim, 4 * setting.dim, bias=False)
        self.c_proj = nn.Linear(4 * setting.dim, setting.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x)))


class Block(nn.Module):
    """Attention and perceptron, each normalised before and added to what came."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(setting.dim, bias=False)
        self.attn = Attention(setting)
        self.ln_2 = nn.LayerNorm(setting.dim, bias=False)
        self.mlp = Perceptron(setting)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """GPT-2 without biases and dropout; the logits are products with the table of tokens."""

    def __init__(self, setting: Setting, symbols: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(symbols, setting.dim)
        self.wpe = nn.Embedding(setting.window, setting.dim)
        self.h = nn.ModuleList(Block(setting) for _ in range(setting.depth))
        self.ln_f = nn.LayerNorm(setting.dim, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                share = math.sqrt(2 * setting.depth) if name.endswith("c_proj.weight") else 1
                nn.init.normal_(parameter, std=0.02 / share)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T

    def loss(self, windows: Tensor) -> Tensor:
        """The mean cross-entropy of every token of [batch, window + 1] but the first."""
        logits = self(windows[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def tokens_of(text: str) -> tuple[Tensor, Tensor, int]:
    """The tokens to train on, those to validate with, and how many symbols there are."""
    symbols = sorted(set(text))
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    tokens = torch.from_numpy(np.array([numbers[symbol] for symbol in text], np.int64))
    cut = int(0.9 * len(tokens))
    return tokens[:cut], tokens[cut:], len(symbols)


def random_windows(tokens: Tensor, setting: Setting) -> Tensor:
    """`get_batch`: [batch, window + 1]."""
    starts = torch.randint(len(tokens) - setting.window, (setting.batch,))
    return torch.stack([tokens[start : start + setting.window + 1] for start in starts])


def make_optimizer(model: GPT, setting: Setting) -> torch.optim.AdamW:
    """Weight decay pulls at what has two axes or more."""
    parameters = list(model.parameters())
    groups = [
        {
            "params": [p for p in parameters if p.dim() >= 2],
            "weight_decay": setting.weight_decay,
        },
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=setting.peak, betas=setting.betas)


def train(model: GPT, tokens: Tensor, setting: Setting) -> Iterator[float]:
    """The loss of every step."""
    optimizer = make_optimizer(model, setting)
    for step in range(setting.steps):
        for group in optimizer.param_groups:
            group["lr"] = setting.rate(step)
        loss = model.loss(random_windows(tokens, setting))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), setting.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()


@torch.no_grad()
def estimated_loss(model: GPT, tokens: Tensor, setting: Setting) -> float:
    """nanoGPT's `estimate_loss`: the mean of random batches."""
    losses = [model.loss(random_windows(tokens, setting)).item() for _ in range(_ESTIMATED)]
    return sum(losses) / len(losses)


@torch.no_grad()
def whole_loss(model: GPT, tokens: Tensor, setting: Setting) -> float:
    """Over windows that follow one another, each token predicted once."""
    windows = tokens.unfold(0, setting.window + 1, setting.window)
    parts = [windows[start : start + 64] for start in range(0, len(windows), 64)]
    return sum(len(part) * float(model.loss(part)) for part in parts) / len(windows)


@click.command()
@click.argument("text", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--steps", default=Setting.steps, show_default=True)
@click.option("--seed", default=1337, show_default=True, help="nanoGPT's own by default.")
@click.option("--json", "figures", type=click.Path(path_type=Path), help="Write the figures there.")
def main(text: Path, steps: int, seed: int, figures: Path | None) -> None:
    """Train nanoGPT's small model on the characters of TEXT."""
    torch.manual_seed(seed)
    setting = Setting(steps=steps)
    training, validation, symbols = tokens_of(text.read_text("utf-8"))
    model = GPT(setting, symbols)
    start = time.perf_counter()
    for step, loss in enumerate(train(model, training, setting), 1):
        if step % 100 == 0 or step == steps:
            click.echo(f"step {step}  loss {loss:.4f}  {time.perf_counter() - start:.0f} s")
    whole, estimate = (
        measure(model, validation, setting) for measure in (whole_loss, estimated_loss)
    )
    found = {
        "steps": steps,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "validation": whole,
        "estimate": estimate,
    }
    click.echo(f"validation loss {whole:.4f}, nanoGPT's estimate {estimate:.4f}")
    if figures is not None:
        figures.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
