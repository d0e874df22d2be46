"""Whisper's encoder: what it makes of a spectrogram is what transformers makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sexpgpu.export.initial import first_value
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from support.real import EXAMPLES, relative_difference
from support.recognised import Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
whisper = pytest.importorskip("transformers.models.whisper.modeling_whisper")

FRAMES = 46
KNOBS: dict[str, Any] = {"mels": 10, "dim": 48, "depth": 3, "heads": 4}
NAMES = {
    "first": "conv1",
    "second": "conv2",
    "positions": "embed_positions.weight",
    "norm": "layer_norm",
    "blocks": "layers",
    "attention-norm": "self_attn_layer_norm",
    "attention": "self_attn",
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "out": "out_proj",
    "mlp-norm": "final_layer_norm",
    "mlp.up": "fc1",
    "mlp.down": "fc2",
    "w": "weight",
    "b": "bias",
    "scale": "weight",
}


def config(mels: int, dim: int, depth: int, heads: int, frames: int = 3000) -> Any:
    return transformers.WhisperConfig(
        num_mel_bins=mels,
        d_model=dim,
        encoder_layers=depth,
        encoder_attention_heads=heads,
        encoder_ffn_dim=4 * dim,
        max_source_positions=frames // 2,
        attn_implementation="eager",
    )


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    example = Recognised("whisper", tmp_path_factory.mktemp("whisper"), frames=FRAMES, **KNOBS)
    example.sharpen(3.0, "attention.q.w", "attention.k.w")
    return example


def test_equal_to_transformers(ours: Recognised, record_property: Any) -> None:
    sizes = config(**KNOBS, frames=FRAMES)
    theirs = load_weights(whisper.WhisperEncoder(sizes), renamed(ours.weights, NAMES))
    inputs = ours.inputs(3)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(inputs["inputs"])).last_hidden_state.numpy()
    difference = relative_difference(ours.run(inputs)["output"], expected)
    record_property("largest relative difference", difference)
    assert difference < 1e-5


def test_bf16_products(ours: Recognised) -> None:
    ours.check_bf16(ours.inputs(2))


def test_positions_are_sinusoids() -> None:
    """Theirs are computed in f32, whose angles up to 1500 are right to four digits."""
    parameter = compile_program(EXAMPLES / "whisper.sx").parameters()["positions"]
    found = first_value(parameter, 0)
    assert parameter.frozen
    np.testing.assert_allclose(found, whisper.sinusoids(1500, 384), rtol=0, atol=3e-4)
    angles = np.arange(1500)[:, None] * 10000.0 ** (-np.arange(192) / 191)
    np.testing.assert_allclose(found, np.hstack([np.sin(angles), np.cos(angles)]), 0, 1e-7)


@pytest.mark.parametrize(
    ("variant", "sizes"),
    [
        (None, (80, 384, 4, 6)),
        ("base", (80, 512, 6, 8)),
        ("small", (80, 768, 12, 12)),
        ("medium", (80, 1024, 24, 16)),
        ("large-v3", (128, 1280, 32, 20)),
    ],
)
def test_published_sizes(variant: str | None, sizes: tuple[int, int, int, int]) -> None:
    """As many numbers as transformers counts under the sizes that are published."""
    with torch.device("meta"):
        model = whisper.WhisperEncoder(config(*sizes))
    parameters = trace_alone(compile_program(EXAMPLES / "whisper.sx", variant)).parameters.values()
    assert sum(p.elements for p in parameters) == sum(p.numel() for p in model.parameters())
