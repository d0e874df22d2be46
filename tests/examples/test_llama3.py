"""Llama 3: the logits are those of transformers on the same weights."""

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
    "depth": 2,
    "heads": 6,
    "kv-heads": 2,
    "hidden": 120,
}
NAMES = {
    "tokens": "model.embed_tokens.weight",
    "head": "lm_head.weight",
    "norm": "model.norm",
    "blocks": "model.layers",
    "attention-norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "mlp-norm": "post_attention_layernorm",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
    "w": "weight",
    "scale": "weight",
}


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def tied(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def ours(tied: bool, tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    directory = tmp_path_factory.mktemp("llama3")
    example = Recognised("llama3", directory, window=WINDOW, tied=tied, **KNOBS)
    example.sharpen(3.0, "attention.q.w", "attention.k.w")
    return example


def logits_of_transformers(ours: Recognised, tied: bool, tokens: Any, factor: float) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=KNOBS["vocab"],
        hidden_size=KNOBS["dim"],
        num_hidden_layers=KNOBS["depth"],
        num_attention_heads=KNOBS["heads"],
        num_key_value_heads=KNOBS["kv-heads"],
        intermediate_size=KNOBS["hidden"],
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        attn_implementation="eager",
    )
    state = renamed(ours.weights, NAMES)
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = load_weights(transformers.LlamaForCausalLM(config), state)
    with torch.no_grad():
        return model(torch.from_numpy(tokens.astype(np.int64))).logits.numpy()


def test_logits_equal_transformers(ours: Recognised, tied: bool, record_property: Any) -> None:
    inputs = ours.inputs(3)
    found = ours.run(inputs)["output"]
    expected = logits_of_transformers(ours, tied, inputs["inputs"], 8.0)
    difference = relative_difference(found, expected)
    record_property("largest relative difference", difference)
    assert difference < 1e-5
    other = logits_of_transformers(ours, tied, inputs["inputs"], 7.0)
    assert relative_difference(found, other) > 10 * difference


def test_other_forms(ours: Recognised, tied: bool) -> None:
    if tied:
        inputs = ours.inputs(2)
        ours.check_bf16(inputs)
        ours.check_at(inputs, [0, 7, WINDOW - 1])


@pytest.mark.parametrize(
    ("variant", "elements"),
    # as they are published
    [
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("llama-3.1-8b", 8_030_261_248),
    ],
)
def test_published_sizes(variant: str, elements: int) -> None:
    model = trace_alone(compile_program(EXAMPLES / "llama3.sx", variant))
    assert sum(parameter.elements for parameter in model.parameters.values()) == elements
