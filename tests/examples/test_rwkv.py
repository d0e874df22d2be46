"""RWKV-4: the logits are those of transformers on the same weights."""

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

WINDOW, WIDTH, DEPTH, VOCAB = 24, 32, 3, 97

NAMES = {
    "first-norm": "rwkv.blocks.0.pre_ln",
    "blocks": "rwkv.blocks",
    "attention-norm": "ln1",
    "mlp-norm": "ln2",
    "mlp": "feed_forward",
    "attention.out": "attention.output",
    "decay": "time_decay",
    "bonus": "time_first",
    "shift-k.share": "time_mix_key",
    "shift-v.share": "time_mix_value",
    "shift-r.share": "time_mix_receptance",
    "norm": "rwkv.ln_out",
    "w": "weight",
    "scale": "weight",
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    knobs = {"window": WINDOW, "vocab": VOCAB, "width": WIDTH, "depth": DEPTH}
    return Recognised("rwkv", tmp_path_factory.mktemp("rwkv"), **knobs)


@pytest.fixture(scope="module")
def theirs(ours: Recognised) -> Any:
    weights = dict(ours.weights)
    table = weights.pop("tokens.w")
    for path in weights:
        if path.endswith("share"):
            weights[path] = weights[path][None, None]
    state = renamed(weights, NAMES) | {"rwkv.embeddings.weight": table}
    config = transformers.RwkvConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        num_hidden_layers=DEPTH,
        # Halving every few layers is for half precision, and moves the norms' epsilon.
        rescale_every=0,
    )
    return load_weights(transformers.RwkvForCausalLM(config), state)


def test_logits_equal_transformers(ours: Recognised, theirs: Any, record_property: Any) -> None:
    inputs = ours.inputs(3)
    with torch.no_grad():
        tokens = torch.from_numpy(inputs["inputs"].astype(np.int64))
        expected = theirs(tokens, use_cache=False).logits.numpy()
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
    # as transformers counts RWKV/rwkv-4-169m-pile and -430m-pile
    [("rwkv-4-169m", 169_342_464), ("rwkv-4-430m", 430_397_440)],
)
def test_published_sizes(variant: str, elements: int) -> None:
    model = trace_alone(compile_program(EXAMPLES / "rwkv.sx", variant))
    assert sum(parameter.elements for parameter in model.parameters.values()) == elements
