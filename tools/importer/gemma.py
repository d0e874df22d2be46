"""Gemma, Gemma 2, and the text models of Gemma 3."""

from __future__ import annotations

from sexpgpu.tools.importer.activations import ACTIVATIONS, activation_of
from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.decoder import (
    Decoder,
    Local,
    depth_of,
    head_dim_of,
    layers_that_see_a_window,
)
from sexpgpu.tools.importer.forms import Form
from sexpgpu.tools.importer.llama import kinds_of_layers
from sexpgpu.tools.importer.program import Draft
from sexpgpu.tools.importer.rope import Rope, rope_of, scaled_rope
from sexpgpu.tools.importer.source import Source

_TANH = "gelu_pytorch_tanh"


def gemma(source: Source) -> Draft:
    """Gemma Team 2024: scaled tokens, gains around 1, and gelu in the gates."""
    configuration = source.configuration
    # transformers takes the gelu of the first releases for the one by tanh
    activation = _activation(configuration, "hidden_act")
    decoder = _decoder(source, "gemma", "a Gemma (Gemma Team 2024): the next token", activation)
    return decoder.draft(source)


def gemma2(source: Source) -> Draft:
    """Gemma Team 2024, "Gemma 2": norms on both sides, soft caps, and every other layer local."""
    configuration = source.configuration
    activation = _activation(configuration, "hidden_activation")
    about = "a Gemma 2 (Gemma Team 2024): the next token"
    decoder = _decoder(source, "gemma2", about, activation)
    decoder.local = _local(configuration, 2, None)
    decoder.sandwich = True
    _scale(configuration, decoder)
    decoder.softcap = configuration.optional_number("attn_logit_softcapping", 50.0)
    decoder.final_softcap = configuration.optional_number("final_logit_softcapping", 30.0)
    return decoder.draft(source)


def gemma3(source: Source) -> Draft:
    """Gemma Team 2025: norms of queries and keys, and one layer of six that sees everything."""
    configuration = source.configuration
    activation = _activation(configuration, "hidden_activation")
    rope, local = _ropes(configuration)
    decoder = _decoder(
        source, "gemma3", "a Gemma 3 (Gemma Team 2025): the next token", activation, rope
    )
    decoder.local = _local(configuration, 6, local)
    decoder.sandwich = decoder.qk_norm = True
    _scale(configuration, decoder)
    # it may be given, and transformers has no such thing in Gemma 3
    why = "the scores of a Gemma 3 are never capped"
    configuration.require("attn_logit_softcapping", None, why=why)
    decoder.final_softcap = configuration.optional_number("final_logit_softcapping")
    return decoder.draft(source)


def _decoder(
    source: Source, name: str, about: str, activation: Form, rope: Rope | None = None
) -> Decoder:
    configuration = source.configuration
    why = "positions see those behind them too"
    configuration.require("use_bidirectional_attention", False, why=why)
    bias = configuration.flag("attention_bias", False)
    return Decoder(
        name,
        name.title(),
        about,
        rope or rope_of(configuration),
        head_dim_of(configuration, 256),
        activation,
        qkv_bias=bias,
        out_bias=bias,
        # llama.cpp's files hold the gains with the 1 added
        norm_offset=None if source.is_gguf else 1,
        scaled_tokens=True,
        tied=True,
    )


def _activation(configuration: Configuration, key: str) -> Form:
    # releases have both keys, of which transformers reads one
    for other in ("hidden_act", "hidden_activation"):
        configuration.take(other)
    found = activation_of(configuration, key, _TANH)
    return ACTIVATIONS[_TANH] if key == "hidden_act" and found == "gelu" else found


def _scale(configuration: Configuration, decoder: Decoder) -> None:
    """The scale of the scores, where it is not that of attention anyway."""
    scalar = configuration.number("query_pre_attn_scalar", 256)
    if scalar != decoder.head_dim:
        decoder.scale = scalar**-0.5


def _local(configuration: Configuration, period: int, rope: Rope | None) -> Local | None:
    depth = depth_of(configuration)
    # transformers writes its own with a _ before it
    pattern = configuration.whole(
        "sliding_window_pattern", configuration.whole("_sliding_window_pattern", period)
    )
    kinds = kinds_of_layers(configuration, depth) or [
        "sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(depth)
    ]
    window = configuration.optional_whole("sliding_window", 4096)
    if window is None or "sliding_attention" not in kinds:
        return None
    return Local(window, layers_that_see_a_window(kinds), rope)


def _ropes(configuration: Configuration) -> tuple[Rope, Rope]:
    """The ropes of layers that see everything and of local ones."""
    base = configuration.number("rope_theta", 1_000_000.0)
    local = configuration.number("rope_local_base_freq", 10_000.0)
    both = configuration.section("rope_parameters")
    older = configuration.section("rope_scaling")
    whole = both and both.section("full_attention")
    sliding = both and both.section("sliding_attention")
    chosen = older or whole
    return (
        scaled_rope(chosen, base, configuration) if chosen else Rope(base),
        scaled_rope(sliding, local, configuration) if sliding else Rope(local),
    )
