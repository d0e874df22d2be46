"""Gemma 2: the logits are those of transformers on the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from support.real import EXAMPLES, relative_difference
from support.recognised import Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WINDOW = 20
KNOBS: dict[str, Any] = {
    "vocab": 97,
    "dim": 96,
    "depth": 3,
    "heads": 4,
    "kv-heads": 2,
    "hidden": 120,
}
NAMES = {
    "tokens": "model.embed_tokens.weight",
    "norm": "model.norm",
    "blocks": "model.layers",
    "attention-norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "attention-after": "post_attention_layernorm",
    "mlp-norm": "pre_feedforward_layernorm",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
    "mlp-after": "post_feedforward_layernorm",
    "w": "weight",
    "scale": "weight",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    """Queries and keys whose scores are cut by the soft cap, and logits that are cut by theirs."""
    sizes: dict[str, Any] = {"window": WINDOW, "sight": 5, "head-dim": 32, "scale-of": 20}
    example = Recognised("gemma", tmp_path_factory.mktemp("gemma"), **KNOBS, **sizes)
    example.sharpen(6.0, "attention.q.w", "attention.k.w")
    example.sharpen(20.0, "tokens")
    return example


def logits_of_transformers(ours: Recognised, tokens: Any, **options: Any) -> Any:
    config = transformers.Gemma2Config(
        **{
            "vocab_size": KNOBS["vocab"],
            "hidden_size": KNOBS["dim"],
            "num_hidden_layers": KNOBS["depth"],
            "num_attention_heads": KNOBS["heads"],
            "num_key_value_heads": KNOBS["kv-heads"],
            "intermediate_size": KNOBS["hidden"],
            "head_dim": 32,
            "query_pre_attn_scalar": 20,
            "sliding_window": 5,
            "attn_implementation": "eager",
            **options,
        }
    )
    state = renamed(ours.weights, NAMES)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = load_weights(transformers.Gemma2ForCausalLM(config), state)
    with torch.no_grad():
        return model(torch.from_numpy(tokens.astype(np.int64))).logits.numpy()


def test_logits_equal_transformers(ours: Recognised, record_property: Any) -> None:
    inputs = ours.inputs(3)
    found = ours.run(inputs)["output"]
    difference = relative_difference(found, logits_of_transformers(ours, inputs["inputs"]))
    record_property("largest relative difference", difference)
    assert difference < 1e-5
    # what sets Gemma 2 apart is seen in these logits
    for option in (
        {"sliding_window": 6},
        {"attn_logit_softcapping": 49.0},
        {"final_logit_softcapping": 29.0},
        {"query_pre_attn_scalar": 21},
    ):
        other = logits_of_transformers(ours, inputs["inputs"], **option)
        assert relative_difference(found, other) > 1e-3, option


def test_other_forms(ours: Recognised) -> None:
    inputs = ours.inputs(2)
    ours.check_bf16(inputs)
    ours.check_at(inputs, [0, 7, WINDOW - 1])


@pytest.mark.parametrize(
    ("variant", "elements"),
    # as they are published
    [("gemma-2-2b", 2_614_341_888), ("gemma-2-9b", 9_241_705_984), ("gemma-2-27b", 27_227_128_320)],
)
def test_published_sizes(variant: str, elements: int) -> None:
    model = trace_alone(compile_program(EXAMPLES / "gemma.sx", variant))
    assert sum(parameter.elements for parameter in model.parameters.values()) == elements
