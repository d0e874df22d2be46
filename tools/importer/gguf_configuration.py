"""The metadata of a GGUF file under the keys that transformers has for the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sexpgpu.export.storage.gguf_source import GgufSource
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.printing import printable

_ARCHITECTURE = "general.architecture"

#: transformers' keys of decoders with rms norms, and the metadata's behind the architecture.
_DECODER = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
_GEMMA = {
    **_DECODER,
    "sliding_window": "attention.sliding_window",
    "final_logit_softcapping": "final_logit_softcapping",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "rope_local_base_freq": "rope.freq_base_swa",
}
_GPT2 = {
    "n_layer": "block_count",
    "n_positions": "context_length",
    "n_embd": "embedding_length",
    "n_inner": "feed_forward_length",
    "n_head": "attention.head_count",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}
_BERT = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "type_vocab_size": "token_type_count",
}

#: Of llama.cpp's architectures: transformers' `model_type`, `architectures`, and the keys.
_ARCHITECTURES: dict[str, tuple[str, str, dict[str, str]]] = {
    "llama": (
        "llama",
        "LlamaForCausalLM",
        {**_DECODER, "sliding_window": "attention.sliding_window"},
    ),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", _DECODER),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", _DECODER),
    "gemma": ("gemma", "GemmaForCausalLM", _DECODER),
    "gemma2": ("gemma2", "Gemma2ForCausalLM", _GEMMA),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM", _GEMMA),
    "gpt2": ("gpt2", "GPT2LMHeadModel", _GPT2),
    "bert": ("bert", "BertModel", _BERT),
}
#: Layers of the one model of a family whose scores are scaled by the width of the whole
#: (llama.cpp, src/models/gemma2.cpp and gemma3.cpp).
_SCALED_BY_WIDTH = {"gemma2": 46, "gemma3": 62}
#: Numbers of YaRN that are always one of these.
_YARN_FIXED = {
    "attn_factor": (1,),
    "yarn_attn_factor": (1,),
    "yarn_ext_factor": (1, -1),
    "yarn_log_multiplier": (0,),
}
#: Keys of an architecture that say nothing which is not said elsewhere.
_TOLD = ("vocab_size", "attention.value_length", "rope.dimension_count", "tensor_data_layout",
         "attention.causal")  # fmt: skip


def configuration_of(source: GgufSource) -> Configuration:
    """The configuration of a GGUF file.

    Raises E-IMPORT-002 for an architecture that is not known, E-IMPORT-004 for what would change
    the numbers and no program is written for.
    """
    metadata, place = source.metadata, str(source.path)
    architecture = metadata.get(_ARCHITECTURE)
    if not isinstance(architecture, str) or architecture not in _ARCHITECTURES:
        raise SexpgpuError(
            "E-IMPORT-002",
            "the GGUF file is of an architecture that is not known",
            place=place,
            came=printable(str(architecture), 40),
            expected=", ".join(_ARCHITECTURES),
        )
    kind, head, keys = _ARCHITECTURES[architecture]
    own = {
        key.removeprefix(f"{architecture}."): value
        for key, value in metadata.items()
        if key.startswith(f"{architecture}.")
    }
    called = {key: f"{architecture}.{name}" for key, name in keys.items()}
    values = {key: own.pop(name) for key, name in keys.items() if name in own}
    values |= {"model_type": kind, "architectures": [head], **_vocabulary(source)}
    # what is found out below joins the values of the same configuration
    configuration = Configuration(values, place, called)
    _check(own, architecture, configuration, metadata)
    values |= _rope(own, source, configuration)
    if architecture in _SCALED_BY_WIDTH:
        values["query_pre_attn_scalar"] = _scalar(configuration, _SCALED_BY_WIDTH[architecture])
    if (pattern := own.pop("attention.sliding_window_pattern", None)) is not None:
        values["sliding_window_pattern"] = pattern
        called["sliding_window_pattern"] = f"{architecture}.attention.sliding_window_pattern"
    for name in sorted(own.keys() - set(_TOLD)):
        values[name], called[name] = own[name], f"{architecture}.{name}"
    return configuration


def _scalar(configuration: Configuration, by_width: int) -> float:
    """What Gemma's scores are divided by the root of."""
    dim, heads = (configuration.whole(k, None) for k in ("hidden_size", "num_attention_heads"))
    if configuration.whole("num_hidden_layers", None) == by_width:
        return dim / heads
    return configuration.whole("head_dim", 256)


def _vocabulary(source: GgufSource) -> dict[str, Any]:
    """What the tensors say: how many tokens there are, and whether the head is a table apart."""
    keys = set(source.keys())
    values: dict[str, Any] = {"tie_word_embeddings": "output.weight" not in keys}
    if "token_embd.weight" in keys and (shape := source.describe("token_embd.weight")[1]):
        values["vocab_size"] = shape[0]
    return values


def _check(
    own: Mapping[str, Any],
    architecture: str,
    configuration: Configuration,
    metadata: Mapping[str, Any],
) -> None:
    """Refuses mixtures of experts, heads that are turned in part, and files of several parts."""
    refused = {
        "expert_count": (0, "the model is a mixture of experts"),
        "attention.causal": (architecture != "bert", "the order that positions see is another"),
    }
    for name, (allowed, why) in refused.items():
        if own.get(name, allowed) != allowed:
            raise _unsupported(configuration.place, f"{architecture}.{name}", own[name], why)
    if metadata.get("split.count", 1) not in (0, 1):
        raise _unsupported(
            configuration.place,
            "split.count",
            metadata["split.count"],
            "the weights are in several GGUF files",
        )
    turned = own.get("rope.dimension_count")
    if turned is not None and "hidden_size" in configuration:
        heads = configuration.whole("num_attention_heads", None)
        size = configuration.whole("head_dim", configuration.whole("hidden_size", None) // heads)
        if turned != size:
            name = f"{architecture}.rope.dimension_count"
            raise _unsupported(configuration.place, name, turned, "heads are turned in part only")


def _rope(own: dict[str, Any], source: GgufSource, configuration: Configuration) -> dict[str, Any]:
    """`rope_scaling` of the metadata, or of the factors that Llama 3's files have as a tensor."""
    kind, factor = own.pop("rope.scaling.type", "none"), own.pop("rope.scaling.factor", None)
    factor = own.pop("rope.scale_linear", factor)
    original = own.pop("rope.scaling.original_context_length", None)
    own.pop("rope.scaling.finetuned", None)
    if "rope_freqs.weight" in set(source.keys()):
        return {"rope_scaling": _llama3(source, configuration)}
    if kind == "none" and factor in (None, 0, 1):
        return {}
    kind = "linear" if kind == "none" else kind
    scaling = {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        scaling |= _yarn(own, configuration, original)
    return {"rope_scaling": {key: value for key, value in scaling.items() if value is not None}}


def _yarn(own: dict[str, Any], configuration: Configuration, original: Any) -> dict[str, Any]:
    """What YaRN has beside its factor.

    llama.cpp finds by the factor alone what cosines and sines are multiplied by, whatever the file
    says of it for transformers (src/llama-context.cpp); a file in which they differ is refused.
    """
    for name, allowed in _YARN_FIXED.items():
        value = own.pop(f"rope.scaling.{name}", allowed[0])
        if value not in allowed:
            name = f"rope.scaling.{name}"
            why = "the rope is a YaRN that is not weighted as usual"
            raise _unsupported(configuration.place, name, value, why)
    found = {"original_max_position_embeddings": original}
    for key in ("beta_fast", "beta_slow"):
        found[key] = own.pop(f"rope.scaling.yarn_{key}", None)
    return found


def _llama3(source: GgufSource, configuration: Configuration) -> dict[str, Any]:
    """The scaling whose factors these are.

    A file keeps what each frequency is divided by.  They are Llama 3's for the numbers that all of
    its releases have, but for the factor itself, which is the last.
    """
    key = "rope_freqs.weight"
    dtype, shape = source.describe(key)
    if dtype != "f32" or len(shape) != 1 or not shape[0]:
        raise _unsupported(source.path, key, list(shape), "the factors of the rope are no list")
    factors = source.stored(key).astype(np.float64)
    factor, low, high, original = float(factors[-1]), 1.0, 4.0, 8192
    base = configuration.number("rope_theta", 10000.0)
    waves = 2 * np.pi * base ** (np.arange(shape[0]) / shape[0])
    smooth = (original / waves - low) / (high - low)
    with np.errstate(all="ignore"):
        wanted = 1 / ((1 - smooth) / factor + smooth)
    wanted = np.where(waves < original / high, 1, np.where(waves > original / low, factor, wanted))
    if not np.allclose(factors, wanted, rtol=1e-4):
        why = "the factors of the rope are those of no scaling that is known"
        raise _unsupported(source.path, key, factors[:4].tolist(), why)
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def _unsupported(place: object, name: str, value: object, why: str) -> SexpgpuError:
    return SexpgpuError("E-IMPORT-004", why, place=str(place), came=f"{name} {value}")
