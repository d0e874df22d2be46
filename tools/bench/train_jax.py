"""The GPT in JAX and optax, written by hand as one would without this project, of which nothing is
used: a contender of `train.py`.

    python train_jax.py FOLDER cpu|cuda

`train_turns.py` says what a contender does; FOLDER is what `train_gpt.prepare` wrote.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

# f32 is f32 on a GPU as well, as it is for the others.
jax.config.update("jax_default_matmul_precision", "highest")  # type: ignore[no-untyped-call]


def layer_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return scale * x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def attend(x: jax.Array, block: Any, heads: int) -> jax.Array:
    batch, length, width = x.shape
    q, k, v = (
        part.reshape(batch, length, heads, width // heads)
        for part in jnp.split(x @ block["qkv"], 3, axis=-1)
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // heads) ** -0.5
    scores = jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    out: jax.Array = mixed.reshape(batch, length, width) @ block["out"]
    return out


def loss_of(parameters: Any, tokens: jax.Array, heads: int) -> jax.Array:
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = parameters["tok"][inputs] + parameters["pos"]
    for block in parameters["blocks"]:
        x = x + attend(layer_norm(x, block["norm-1"]), block, heads)
        hidden = layer_norm(x, block["norm-2"]) @ block["up"]
        x = x + jax.nn.gelu(hidden, approximate=False) @ block["down"]
    logits = layer_norm(x, parameters["norm"]) @ parameters["tok"].T
    loss: jax.Array = optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()
    return loss


def optimizer_of(sizes: Any) -> optax.GradientTransformation:
    rate = optax.warmup_cosine_decay_schedule(
        sizes["rate"] / (sizes["warm_up"] + 1),
        sizes["rate"],
        sizes["warm_up"],
        sizes["fall"],
        sizes["rate"] * sizes["final"],
    )
    return optax.chain(
        optax.clip_by_global_norm(sizes["clip"]),
        optax.adamw(
            rate,
            b1=sizes["beta1"],
            b2=sizes["beta2"],
            eps=sizes["epsilon"],
            weight_decay=sizes["decay"],
            mask=lambda parameters: jax.tree.map(lambda p: p.ndim >= 2, parameters),
        ),
    )


def make_step(optimizer: optax.GradientTransformation, heads: int) -> Any:
    @partial(jax.jit, donate_argnums=(0, 1))
    def step(parameters: Any, state: Any, tokens: jax.Array) -> tuple[Any, Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, tokens, heads)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    return step


def load_parameters(path: Path, layers: int) -> Any:
    """The same first weights; those of queries, keys and values as one matrix."""
    with np.load(path) as stored:
        w = {name: stored[name] for name in stored}
    blocks = []
    for i in range(layers):
        parts = [w[f"blocks.{i}.attention.{name}.w"] for name in "qkv"]
        blocks.append(
            {
                "norm-1": w[f"blocks.{i}.norm-1.scale"],
                "qkv": np.concatenate(parts, axis=1),
                "out": w[f"blocks.{i}.attention.out.w"],
                "norm-2": w[f"blocks.{i}.norm-2.scale"],
                "up": w[f"blocks.{i}.mlp.up.w"],
                "down": w[f"blocks.{i}.mlp.down.w"],
            }
        )
    made = {"tok": w["tok"], "pos": w["pos"], "norm": w["norm.scale"], "blocks": blocks}
    return jax.tree.map(jnp.array, made)


def main() -> None:
    folder = Path(sys.argv[1])
    jax.config.update("jax_platforms", sys.argv[2])  # type: ignore[no-untyped-call]
    sizes = json.loads((folder / "sizes.json").read_text())
    batches = np.load(folder / "batches.npy")
    parameters = load_parameters(folder / "weights.npz", sizes["layers"])
    optimizer = optimizer_of(sizes)
    state = optimizer.init(parameters)
    step = make_step(optimizer, sizes["heads"])
    taken, losses = 0, []
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            tokens = jax.device_put(batches[taken % len(batches)])
            parameters, state, loss = step(parameters, state, tokens)
            taken += 1
            if taken <= 5:
                losses.append(loss)
        jax.block_until_ready(parameters)  # type: ignore[no-untyped-call]
        print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)
    memory = jax.devices()[0].memory_stats() or {}
    end = {
        "losses": [float(loss) for loss in losses],
        "device_bytes": memory.get("peak_bytes_in_use", 0),
    }
    print(json.dumps(end), flush=True)


if __name__ == "__main__":
    main()
