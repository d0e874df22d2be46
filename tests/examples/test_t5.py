"""T5's encoder: what each token means is what transformers says on the same weights."""

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

WINDOW = 44
KNOBS: dict[str, Any] = {"vocab": 97, "dim": 48, "depth": 3, "heads": 5, "hidden": 72}
NAMES = {
    "tokens": "shared",
    "distances.w": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "norm": "encoder.final_layer_norm",
    "blocks": "encoder.block",
    "attention-norm": "layer.0.layer_norm",
    "attention": "layer.0.SelfAttention",
    "out": "o",
    "mlp-norm": "layer.1.layer_norm",
    "mlp.up": "layer.1.DenseReluDense.wi",
    "mlp.down": "layer.1.DenseReluDense.wo",
    "w": "weight",
    "scale": "weight",
}
GATED_NAMES = {
    **NAMES,
    "mlp.gate": "layer.1.DenseReluDense.wi_0",
    "mlp.up": "layer.1.DenseReluDense.wi_1",
}


def config(gated: bool, **sizes: int) -> Any:
    kind = "gated-gelu" if gated else "relu"
    return transformers.T5Config(
        **sizes, feed_forward_proj=kind, d_kv=64, attn_implementation="eager"
    )


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "gated"])
def gated(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def ours(gated: bool, tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    example = Recognised("t5", tmp_path_factory.mktemp("t5"), window=WINDOW, gated=gated, **KNOBS)
    # distances matter as much as what is said
    example.sharpen(50.0, "distances.w")
    return example


@pytest.fixture(scope="module")
def theirs(gated: bool, ours: Recognised) -> Any:
    state = renamed(
        {path: array.T if path in TABLES else array for path, array in ours.weights.items()},
        GATED_NAMES if gated else NAMES,
    )
    state["encoder.embed_tokens.weight"] = state["shared.weight"]
    sizes = {
        "d_model": KNOBS["dim"],
        "d_ff": KNOBS["hidden"],
        "num_layers": KNOBS["depth"],
        "num_heads": KNOBS["heads"],
        "vocab_size": KNOBS["vocab"],
    }
    return load_weights(transformers.T5EncoderModel(config(gated, **sizes)), state)


#: These are read by their rows in both.
TABLES = {"tokens.w", "distances.w"}


@pytest.fixture(scope="module")
def inputs(ours: Recognised) -> dict[str, Array]:
    """Texts of several lengths, and one with a hole."""
    drawn = ours.inputs(4)
    mask = np.arange(WINDOW) < np.array([[WINDOW], [1], [17], [WINDOW]])
    mask[3, 5:9] = False
    return {**drawn, "inputs.1": mask}


def test_equal_to_transformers(
    ours: Recognised, theirs: Any, inputs: dict[str, Array], record_property: Any
) -> None:
    tokens, mask = (torch.from_numpy(array.astype(np.int64)) for array in inputs.values())
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask).last_hidden_state.numpy()
    difference = relative_difference(ours.run(inputs)["output"], expected)
    record_property("largest relative difference", difference)
    assert difference < 1e-5


def test_bf16_products(ours: Recognised, inputs: dict[str, Array]) -> None:
    ours.check_bf16(inputs)


@pytest.mark.parametrize(
    ("variant", "sizes"),
    [
        (None, (512, 2048, 6, 8, False)),
        ("t5-base", (768, 3072, 12, 12, False)),
        ("t5-large", (1024, 4096, 24, 16, False)),
        ("t5-v1.1-small", (512, 1024, 8, 6, True)),
        ("t5-v1.1-base", (768, 2048, 12, 12, True)),
    ],
)
def test_published_sizes(variant: str | None, sizes: tuple[int, int, int, int, bool]) -> None:
    """As many numbers as transformers counts under the sizes that are published."""
    dim, hidden, depth, heads, gated = sizes
    with torch.device("meta"):
        published = config(gated, d_model=dim, d_ff=hidden, num_layers=depth, num_heads=heads)
        model = transformers.T5EncoderModel(published)
    parameters = trace_alone(compile_program(EXAMPLES / "t5.sx", variant)).parameters.values()
    assert sum(p.elements for p in parameters) == sum(p.numel() for p in model.parameters())
