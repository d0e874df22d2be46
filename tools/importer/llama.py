"""Llama, Mistral, Qwen 2 and Qwen 3."""

from __future__ import annotations

from sexpgpu.tools.importer.activations import activation_of
from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.decoder import (
    Decoder,
    Local,
    depth_of,
    head_dim_of,
    layers_that_see_a_window,
)
from sexpgpu.tools.importer.program import Draft
from sexpgpu.tools.importer.rope import rope_of
from sexpgpu.tools.importer.source import Source


def llama(source: Source) -> Draft:
    """Touvron et al. 2023; Llama 3's rope, and biases where the configuration has them."""
    configuration = source.configuration
    bias = configuration.flag("attention_bias", False)
    configuration.require("rope_interleaved", False, why="neighbours are turned together")
    return Decoder(
        "llama",
        "Llama",
        "a Llama (Touvron et al. 2023): the next token",
        rope_of(configuration),
        head_dim_of(configuration),
        activation_of(configuration, "hidden_act", "silu"),
        local=_everywhere(configuration) if source.is_gguf else None,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=configuration.flag("mlp_bias", False),
    ).draft(source)


def mistral(source: Source) -> Draft:
    """Jiang et al. 2023: a Llama whose positions see a window."""
    configuration = source.configuration
    if configuration.words("layer_types"):
        configuration.unsupported("layer_types", "a Mistral has layers of one kind")
    return Decoder(
        "mistral",
        "Mistral",
        "a Mistral (Jiang et al. 2023): the next token",
        rope_of(configuration),
        head_dim_of(configuration),
        activation_of(configuration, "hidden_act", "silu"),
        local=_everywhere(configuration, 4096),
    ).draft(source)


def qwen2(source: Source) -> Draft:
    """Yang et al. 2024: a Llama with biases for queries, keys and values."""
    configuration = source.configuration
    configuration.require("use_mrope", False, why="positions are those of images")
    return Decoder(
        "qwen2",
        "Qwen2",
        "a Qwen 2 (Yang et al. 2024): the next token",
        rope_of(configuration),
        head_dim_of(configuration),
        activation_of(configuration, "hidden_act", "silu"),
        local=_upper_layers(configuration),
        qkv_bias=True,
    ).draft(source)


def qwen3(source: Source) -> Draft:
    """Yang et al. 2025: queries and keys are normalised."""
    configuration = source.configuration
    bias = configuration.flag("attention_bias", False)
    return Decoder(
        "qwen3",
        "Qwen3",
        "a Qwen 3 (Yang et al. 2025): the next token",
        rope_of(configuration),
        head_dim_of(configuration, 128),
        activation_of(configuration, "hidden_act", "silu"),
        local=_upper_layers(configuration),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
    ).draft(source)


def _everywhere(configuration: Configuration, default: int | None = None) -> Local | None:
    """The window that every layer sees, if there is one."""
    window = configuration.optional_whole("sliding_window", default)
    return None if window is None else Local(window, None)


def _upper_layers(configuration: Configuration) -> Local | None:
    """The window of Qwen's layers: `layer_types`, or those from `max_window_layers` on."""
    used = configuration.flag("use_sliding_window", False)
    window = configuration.optional_whole("sliding_window", 4096)
    first = configuration.whole("max_window_layers", 28, least=0)
    depth = depth_of(configuration)
    kinds = kinds_of_layers(configuration, depth) or [
        "sliding_attention" if used and window and i >= first else "full_attention"
        for i in range(depth)
    ]
    if "sliding_attention" not in kinds:
        return None
    if not used or window is None:
        configuration.unsupported("layer_types", "layers slide over a window that is not given")
    return Local(window, layers_that_see_a_window(kinds))


def kinds_of_layers(configuration: Configuration, depth: int) -> list[str]:
    """`layer_types`, of full and sliding attention; empty where it is missing."""
    kinds = configuration.words("layer_types")[:depth]
    if set(kinds) - {"full_attention", "sliding_attention"}:
        configuration.unsupported(
            "layer_types", "a layer is of an unknown type", expected="full or sliding attention"
        )
    if kinds and len(kinds) < depth:
        configuration.wrong("layer_types", f"a type for each of the {depth} layers")
    return kinds
