"""GPT-2: the logits are those of transformers on the same weights."""

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
transformers = pytest.importorskip("transformers")

WINDOW, DIM, HEADS, DEPTH, VOCAB = 14, 48, 4, 3, 211

NAMES = {
    "tokens": "transformer.wte.weight",
    "positions": "transformer.wpe.weight",
    "norm": "transformer.ln_f",
    "blocks": "transformer.h",
    "attention-norm": "ln_1",
    "attention.out": "attn.c_proj",
    "attention": "attn",
    "mlp-norm": "ln_2",
    "up": "c_fc",
    "down": "c_proj",
    "w": "weight",
    "b": "bias",
    "scale": "weight",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    knobs: dict[str, Any] = {
        "window": WINDOW,
        "dim": DIM,
        "heads": HEADS,
        "depth": DEPTH,
        "vocab": VOCAB,
    }
    example = Recognised("gpt2", tmp_path_factory.mktemp("gpt2"), **knobs)
    example.sharpen(8.0, "attention.q.w", "attention.k.w")
    return example


def with_one_product(weights: dict[str, Array]) -> dict[str, Array]:
    """Queries, keys and values side by side, as GPT-2 makes them."""
    joined = dict(weights)
    for number in range(DEPTH):
        at = f"blocks.{number}.attention"
        for kind in ("w", "b"):
            parts = [joined.pop(f"{at}.{name}.{kind}") for name in "qkv"]
            joined[f"{at}.c_attn.{kind}"] = np.concatenate(parts, -1)
    return joined


@pytest.fixture(scope="module")
def theirs(ours: Recognised) -> Any:
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=DIM, n_layer=DEPTH, n_head=HEADS, attn_implementation="eager"
    )
    # Its Conv1D has its weights [in, out], as ours are.
    state = renamed(with_one_product(ours.weights), NAMES, turned=False)
    state["lm_head.weight"] = state["transformer.wte.weight"]
    return load_weights(transformers.GPT2LMHeadModel(config), state)


def test_logits_equal_transformers(ours: Recognised, theirs: Any, record_property: Any) -> None:
    inputs = ours.inputs(3)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(inputs["inputs"].astype(np.int64))).logits.numpy()
    difference = relative_difference(ours.run(inputs)["output"], expected)
    record_property("largest relative difference", difference)
    assert difference < 1e-5


def test_other_forms(ours: Recognised) -> None:
    inputs = ours.inputs(2)
    ours.check_bf16(inputs)
    ours.check_at(inputs, [0, 5, WINDOW - 1])


@pytest.mark.parametrize(
    ("variant", "elements"),
    # as transformers counts the models of the paper
    [(None, 124_439_808), ("medium", 354_823_168), ("large", 774_030_080), ("xl", 1_557_611_200)],
)
def test_published_sizes(variant: str | None, elements: int) -> None:
    model = trace_alone(compile_program(EXAMPLES / "gpt2.sx", variant))
    assert sum(parameter.elements for parameter in model.parameters.values()) == elements
