"""Mamba: the logits are those of transformers on the same weights."""

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

WINDOW, WIDTH, DEPTH, VOCAB, STATE = 24, 40, 2, 97, 6

NAMES = {
    "tokens": "backbone.embeddings.weight",
    "norm": "backbone.norm_f",
    "blocks.0": "backbone.layers.0",
    "blocks.1": "backbone.layers.1",
    "blocks.0.norm": "backbone.layers.0.norm",
    "blocks.1.norm": "backbone.layers.1.norm",
    "in": "in_proj",
    "conv": "conv1d",
    "select": "x_proj",
    "step": "dt_proj",
    "step-bias": "dt_proj.bias",
    "log-a": "A_log",
    "skip": "D",
    "out": "out_proj",
    "w": "weight",
    "b": "bias",
    "scale": "weight",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    knobs = {"window": WINDOW, "vocab": VOCAB, "width": WIDTH, "depth": DEPTH, "state": STATE}
    return Recognised("mamba", tmp_path_factory.mktemp("mamba"), **knobs)


@pytest.fixture(scope="module")
def theirs(ours: Recognised) -> Any:
    config = transformers.MambaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=DEPTH, state_size=STATE
    )
    state = renamed(ours.weights, NAMES)
    state["lm_head.weight"] = state["backbone.embeddings.weight"]
    return load_weights(transformers.MambaForCausalLM(config), state)


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
    ours.check_causal()
    ours.check_at(inputs, [0, 5, WINDOW - 1])


@pytest.mark.parametrize(
    ("variant", "elements"),
    # as transformers counts state-spaces/mamba-130m-hf and -370m-hf
    [("mamba-130m", 129_135_360), ("mamba-370m", 371_516_416)],
)
def test_published_sizes(variant: str, elements: int) -> None:
    model = trace_alone(compile_program(EXAMPLES / "mamba.sx", variant))
    assert sum(parameter.elements for parameter in model.parameters.values()) == elements
