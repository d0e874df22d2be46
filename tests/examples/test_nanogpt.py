"""shakespeare.sx is nanoGPT: from the same weights and records it takes the same steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.real import EXAMPLES

pytest.importorskip("torch")
pytest.importorskip("jax")
pytest.importorskip("optax")

import jax.numpy as jnp
import torch

from sexpgpu.tools.bench import nanogpt
from sexpgpu.tools.train.engine import first_state, make_step
from sexpgpu.tools.train.optimizer import make_optimizer
from sexpgpu.tools.train.plan import make_plan
from sexpgpu.tools.train.schedule import make_schedule

SYMBOLS = 30
SETTING = nanogpt.Setting(window=16, dim=32, depth=2, heads=2, steps=160)


def our_weights(model: Any) -> dict[str, Array]:
    """nanoGPT's under our paths; its products have their weights the other way round."""
    theirs = {
        name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()
    }
    found = {
        "tokens": theirs["wte.weight"],
        "positions": theirs["wpe.weight"],
        "norm.scale": theirs["ln_f.weight"],
    }
    for number in range(SETTING.depth):
        layer, block = f"h.{number}", f"blocks.{number}"
        thirds = np.split(theirs[f"{layer}.attn.c_attn.weight"].T, 3, axis=1)
        found |= {f"{block}.attention.{name}.w": w for name, w in zip("qkv", thirds, strict=True)}
        found |= {
            f"{block}.attention-norm.scale": theirs[f"{layer}.ln_1.weight"],
            f"{block}.attention.out.w": theirs[f"{layer}.attn.c_proj.weight"].T,
            f"{block}.mlp-norm.scale": theirs[f"{layer}.ln_2.weight"],
            f"{block}.mlp.up.w": theirs[f"{layer}.mlp.c_fc.weight"].T,
            f"{block}.mlp.down.w": theirs[f"{layer}.mlp.c_proj.weight"].T,
        }
    return found


def test_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the warm-up and some of the cosine, where the gradients are clipped and not."""
    text = tmp_path / "text.txt"
    text.write_text("".join(map(chr, range(65, 65 + SYMBOLS))) * 20)
    sizes = {name: getattr(SETTING, name) for name in ("window", "dim", "depth", "heads", "steps")}
    plan = make_plan(
        EXAMPLES / "shakespeare.sx", None, {**sizes, "symbols": SYMBOLS, "file": str(text)}, None
    )
    torch.manual_seed(0)
    model = nanogpt.GPT(SETTING, SYMBOLS)
    weights = our_weights(model)
    assert set(weights) == set(plan.trained)

    # a walk whose next token follows from the last, nearly always
    generator = np.random.default_rng(0)
    jumps = generator.integers(1, SYMBOLS, 4000) * (generator.random(4000) < 0.2)
    tokens = torch.from_numpy(np.cumsum(1 + jumps) % SYMBOLS)
    records: list[Array] = []
    drawn = nanogpt.random_windows

    def draw(*given: Any) -> Any:
        windows = drawn(*given)
        records.append(windows.numpy().astype(np.int32))
        return windows

    norms: list[float] = []
    clip = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(nanogpt, "random_windows", draw)
    monkeypatch.setattr(
        torch.nn.utils, "clip_grad_norm_", lambda *given: norms.append(float(clip(*given)))
    )
    theirs = list(nanogpt.train(model, tokens, SETTING))
    assert min(norms) < SETTING.clip < max(norms)

    optimizer = make_optimizer(plan.run)
    rate = make_schedule(plan.run.schedule, plan.run.steps, plan.run.optimizer.options["lr"])
    step = make_step(plan.training, plan.run, optimizer, rate)
    parameters = {path: jnp.asarray(array) for path, array in weights.items()}
    state = first_state(plan.training, parameters, optimizer, plan.run)
    ours = []
    for number, windows in enumerate(records):
        state, told = step(state, {}, {"tokens": jnp.asarray(windows)}, np.uint32(number))
        ours.append(float(told.metrics["loss"]))
        assert float(told.metrics["learning_rate"]) == pytest.approx(SETTING.rate(number))
    np.testing.assert_allclose(ours, theirs, rtol=5e-5)
    assert ours[-1] < 0.7 * ours[0]
    for path, array in our_weights(model).items():
        np.testing.assert_allclose(state.parameters[path], array, rtol=0, atol=5e-5, err_msg=path)
