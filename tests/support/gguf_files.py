"""GGUF files of small models, as llama.cpp's convert_hf_to_gguf.py writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from sexpgpu.export.graph.types import Array

#: llama.cpp's names of transformers' families.
ARCHITECTURES = {"gemma3_text": "gemma3", "roberta": "bert"}
#: Tensors of GPT-2 that transformers keeps the other way round.
_CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def write_gguf(
    model: Any,
    path: Path,
    *,
    quantised: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    extra: Mapping[str, Array] | None = None,
    without: str | None = None,
) -> Path:
    """A file of a model of transformers; matrices are `quantised`, "Q8_0", where that is given.

    `metadata` has values of further keys, or other values, behind the architecture; None leaves a
    key out.  `extra` are further tensors; those with `without` in their names are left out.
    """
    config = model.config
    kind = config.model_type
    architecture = ARCHITECTURES.get(kind, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in {**_metadata(config), **(metadata or {})}.items():
        if value is not None:
            add_value(writer, f"{architecture}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    number = next(n for n, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    tensors = {**_tensors(model, kind), **(extra or {})}
    for name, array in tensors.items():
        if without is not None and without in name:
            continue
        called = name if extra and name in extra else _called(names, name)
        if quantised and array.ndim == 2 and array.shape[-1] % 32 == 0:
            to = gguf.GGMLQuantizationType[quantised]
            writer.add_tensor(called, gguf.quants.quantize(array, to), raw_dtype=to)
        else:
            writer.add_tensor(called, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _called(names: Any, name: str) -> str:
    called = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert called is not None, name
    return str(called)


def add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """A value of the metadata, of the kind that it has in Python."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        writer.add_string(key, value)


def _metadata(config: Any) -> dict[str, Any]:
    """What is said of a model behind its architecture."""
    heads, dim = config.num_attention_heads, config.hidden_size
    common = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": dim,
        "attention.head_count": heads,
    }
    if config.model_type == "gpt2":
        inner = config.n_inner or 4 * dim
        epsilon = config.layer_norm_epsilon
        return {
            **common,
            "feed_forward_length": inner,
            "attention.layer_norm_epsilon": epsilon,
        }
    common["feed_forward_length"] = config.intermediate_size
    if config.model_type in ("bert", "roberta"):
        common["context_length"] -= _places_before(config)
        return {
            **common,
            "attention.layer_norm_epsilon": config.layer_norm_eps,
            "attention.causal": False,
            "token_type_count": config.type_vocab_size,
        }
    head_dim = getattr(config, "head_dim", None) or dim // heads
    ropes = config.rope_parameters
    rope = ropes.get("full_attention", ropes)
    scaling = {} if rope["rope_type"] not in ("linear", "yarn") else {
        "rope.scaling.type": rope["rope_type"],
        "rope.scaling.factor": float(rope["factor"]),
        "rope.scaling.original_context_length": rope.get("original_max_position_embeddings"),
        "rope.scaling.yarn_beta_fast": rope.get("beta_fast"),
    }  # fmt: skip
    return {
        **common,
        **scaling,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(rope["rope_theta"]),
        "vocab_size": config.vocab_size,
        "rope.dimension_count": head_dim if config.model_type == "llama" else None,
        "attention.sliding_window": _window(config),
        "attn_logit_softcapping": getattr(config, "attn_logit_softcapping", None),
        "final_logit_softcapping": getattr(config, "final_logit_softcapping", None),
    }


def _places_before(config: Any) -> int:
    """Positions before that of the first token, which llama.cpp leaves out."""
    return config.pad_token_id + 1 if config.model_type == "roberta" else 0


def _window(config: Any) -> int | None:
    return config.sliding_window if config.model_type.startswith("gemma") and hasattr(
        config, "sliding_window"
    ) else None  # fmt: skip


def _tensors(model: Any, kind: str) -> dict[str, Array]:
    """The model's tensors as llama.cpp has them, under transformers' names."""
    config, found = model.config, {}
    tied = config.tie_word_embeddings
    for name, tensor in model.state_dict().items():
        array = tensor.numpy()
        if (tied and name == "lm_head.weight") or "pooler" in name:
            continue
        if kind == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            query = name.endswith("q_proj.weight")
            heads = config.num_attention_heads if query else config.num_key_value_heads
            array = turned(array, heads)
        if kind.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        if kind == "roberta" and name == "embeddings.position_embeddings.weight":
            array = array[_places_before(config) :]
        if kind == "gpt2" and name.endswith(_CONV1D):
            array = array.T
        found[name] = array
    return found


def turned(weight: Array, heads: int) -> Array:
    """The rows of q or k in the order in which neighbours are turned together."""
    rows = weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)
