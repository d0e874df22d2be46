"""Mixtral: the logits are those of transformers on the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from support.real import EXAMPLES, relative_difference
from support.recognised import BF16_TOLERANCE, Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WINDOW, EXPERTS, HIDDEN = 20, 6, 56
KNOBS: dict[str, Any] = {"vocab": 97, "dim": 96, "depth": 2, "heads": 6, "kv-heads": 2}
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
    "router": "gate",
    "down": "experts.down_proj",
    "w": "weight",
    "scale": "weight",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    sizes: dict[str, Any] = {"window": WINDOW, "experts": EXPERTS, "hidden": HIDDEN}
    example = Recognised("mixtral", tmp_path_factory.mktemp("mixtral"), **KNOBS, **sizes)
    example.sharpen(3.0, "attention.q.w", "attention.k.w", "router.w")
    return example


def of_each_expert(weights: dict[str, Array]) -> dict[str, Array]:
    """The experts' matrices apart, [out, in] each, and gate and up one above the other."""
    apart = dict(weights)
    for path in weights:
        at, _, name = path.rpartition(".")
        if name == "gate":
            parts = [
                apart.pop(f"{at}.{part}").T.reshape(EXPERTS, HIDDEN, -1) for part in ("gate", "up")
            ]
            apart[f"{at}.experts.gate_up_proj"] = np.concatenate(parts, 1)
        elif name == "down":
            apart[path] = apart[path].reshape(EXPERTS, HIDDEN, -1).transpose(0, 2, 1)
    return apart


def logits_of_transformers(ours: Recognised, tokens: Any, top: int) -> Any:
    config = transformers.MixtralConfig(
        vocab_size=KNOBS["vocab"],
        hidden_size=KNOBS["dim"],
        num_hidden_layers=KNOBS["depth"],
        num_attention_heads=KNOBS["heads"],
        num_key_value_heads=KNOBS["kv-heads"],
        intermediate_size=HIDDEN,
        num_local_experts=EXPERTS,
        num_experts_per_tok=top,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        rms_norm_eps=1e-5,
        attn_implementation="eager",
    )
    state = renamed(of_each_expert(ours.weights), NAMES)
    model = load_weights(transformers.MixtralForCausalLM(config), state)
    with torch.no_grad():
        return model(torch.from_numpy(tokens.astype(np.int64))).logits.numpy()


def test_logits_equal_transformers(ours: Recognised, record_property: Any) -> None:
    inputs = ours.inputs(3)
    found = ours.run(inputs)["output"]
    difference = relative_difference(found, logits_of_transformers(ours, inputs["inputs"], 2))
    record_property("largest relative difference", difference)
    assert difference < 1e-5
    other = logits_of_transformers(ours, inputs["inputs"], 3)
    assert relative_difference(found, other) > 1e-2


def test_bf16_products(ours: Recognised, record_property: Any) -> None:
    """Where two experts are as good as each other rounding may choose the other; elsewhere near."""
    inputs = ours.inputs(8)
    exact, found = (ours.run(inputs, **form)["output"] for form in ({}, {"precision": "bf16"}))
    differences = np.abs(found - exact).max(-1) / np.abs(exact).max()
    record_property("median relative difference", float(np.median(differences)))
    assert 0 < np.median(differences) < BF16_TOLERANCE / 2
    assert (differences < BF16_TOLERANCE).mean() > 0.8


def test_one_position(ours: Recognised) -> None:
    ours.check_at(ours.inputs(2), [0, 7, WINDOW - 1])


@pytest.mark.parametrize(
    ("variant", "elements"),
    # as they are published
    [("mixtral-8x7b", 46_702_792_704), ("mixtral-8x22b", 140_630_071_296)],
)
def test_published_sizes(variant: str, elements: int) -> None:
    model = trace_alone(compile_program(EXAMPLES / "mixtral.sx", variant))
    assert sum(parameter.elements for parameter in model.parameters.values()) == elements
