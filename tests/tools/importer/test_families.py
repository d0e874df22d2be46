"""Configurations as well-known models have them: every key is known, and the sizes are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.families import HARMLESS, draft_of
from sexpgpu.tools.importer.source import Source

#: What configurations of transformers before 5 have in common.
COMMON = {"initializer_range": 0.02, "transformers_version": "4.40.0", "use_cache": True}
DECODER = {**COMMON, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": [2, 3],
           "torch_dtype": "bfloat16"}  # fmt: skip
ENCODER = {**COMMON, "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1,
           "pad_token_id": 0}  # fmt: skip

MODELS: dict[str, dict[str, Any]] = {
    "llama 3.2": {
        **DECODER, "architectures": ["LlamaForCausalLM"], "attention_bias": False, "head_dim": 64,
        "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": True, "vocab_size": 128256,
    },
    "smollm2": {
        **DECODER, "architectures": ["LlamaForCausalLM"], "attention_bias": False,
        "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536,
        "is_llama_config": True, "max_position_embeddings": 8192, "mlp_bias": False,
        "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
        "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000,
        "tie_word_embeddings": True, "transformers.js_config": {"kv_cache_dtype": {}},
        "vocab_size": 49152,
    },
    "qwen2.5": {
        **DECODER, "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
        "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768,
        "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": True,
        "use_mrope": False, "use_sliding_window": False, "vocab_size": 151936,
    },
    "qwen3": {
        **DECODER, "architectures": ["Qwen3ForCausalLM"], "attention_bias": False,
        "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
        "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
        "sliding_window": None, "tie_word_embeddings": True, "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "gemma": {
        **DECODER, "architectures": ["GemmaForCausalLM"], "attention_bias": False,
        "head_dim": 256, "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 2048, "intermediate_size": 16384, "max_position_embeddings": 8192,
        "model_type": "gemma", "num_attention_heads": 8, "num_hidden_layers": 18,
        "num_key_value_heads": 1, "pad_token_id": 0, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 10000.0, "vocab_size": 256000,
    },
    "gemma2": {
        **DECODER, "architectures": ["Gemma2ForCausalLM"], "attention_bias": False,
        "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid",
        "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
        "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
        "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
        "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000,
    },
    "gemma3": {
        **DECODER, "architectures": ["Gemma3ForCausalLM"], "attention_bias": False,
        "attn_logit_softcapping": None, "cache_implementation": "hybrid",
        "final_logit_softcapping": None, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
        "intermediate_size": 6912, "max_position_embeddings": 32768,
        "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26,
        "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": None,
        "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
        "vocab_size": 262144,
    },
    "mistral": {
        **DECODER, "architectures": ["MistralForCausalLM"], "hidden_act": "silu",
        "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
        "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
        "sliding_window": 4096, "tie_word_embeddings": False, "vocab_size": 32000,
    },
    "gpt2": {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
        "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
        "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "vocab_size": 50257,
    },
    "bert": {
        **ENCODER, "architectures": ["BertForMaskedLM"], "gradient_checkpointing": False,
        "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072,
        "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
        "num_attention_heads": 12, "num_hidden_layers": 12,
        "position_embedding_type": "absolute", "type_vocab_size": 2, "vocab_size": 30522,
    },
    "roberta": {
        **ENCODER, "architectures": ["RobertaForMaskedLM"], "bos_token_id": 0, "eos_token_id": 2,
        "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072,
        "layer_norm_eps": 1e-05, "max_position_embeddings": 514, "model_type": "roberta",
        "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
        "type_vocab_size": 1, "vocab_size": 50265,
    },
    "xlm-roberta": {
        **ENCODER, "architectures": ["XLMRobertaForMaskedLM"], "bos_token_id": 0,
        "eos_token_id": 2, "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072,
        "layer_norm_eps": 1e-05, "max_position_embeddings": 514, "model_type": "xlm-roberta",
        "num_attention_heads": 12, "num_hidden_layers": 12, "output_past": True,
        "pad_token_id": 1, "position_embedding_type": "absolute", "type_vocab_size": 1,
        "vocab_size": 250002,
    },
    "distilbert": {
        "activation": "gelu", "architectures": ["DistilBertForMaskedLM"],
        "attention_dropout": 0.1, "dim": 768, "dropout": 0.1, "hidden_dim": 3072,
        "initializer_range": 0.02, "max_position_embeddings": 512, "model_type": "distilbert",
        "n_heads": 12, "n_layers": 6, "pad_token_id": 0, "qa_dropout": 0.1,
        "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True,
        "transformers_version": "4.10.0", "vocab_size": 30522,
    },
    "albert": {
        **ENCODER, "architectures": ["AlbertForMaskedLM"], "bos_token_id": 2,
        "classifier_dropout_prob": 0.1, "down_scale_factor": 1, "embedding_size": 128,
        "eos_token_id": 3, "gap_size": 0, "hidden_act": "gelu_new", "hidden_size": 768,
        "inner_group_num": 1, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512, "model_type": "albert", "net_structure_type": 0,
        "num_attention_heads": 12, "num_hidden_groups": 1, "num_hidden_layers": 12,
        "num_memory_blocks": 0, "type_vocab_size": 2, "vocab_size": 30000,
    },
    "vit": {
        **ENCODER, "architectures": ["ViTForImageClassification"], "encoder_stride": 16,
        "hidden_act": "gelu", "hidden_size": 768, "id2label": {"0": "tench"},
        "image_size": 224, "intermediate_size": 3072, "label2id": {"tench": 0},
        "layer_norm_eps": 1e-12, "model_type": "vit", "num_attention_heads": 12,
        "num_channels": 3, "num_hidden_layers": 12, "patch_size": 16, "qkv_bias": True,
    },
}  # fmt: skip

#: Something that the program must say.
SAID = {
    "llama 3.2": ":base 500000.0 :rotary-options (list :scaling :llama3 :factor 32.0",
    "smollm2": ":base 100000.0",
    "qwen2.5": ":bias true :out-bias false",
    "qwen3": ":head-dim head-dim",
    "gemma": ":activation gelu-tanh",
    "gemma2": ":window (if local 4096 nil) :softcap 50.0",
    "gemma3": ":base (if local 10000.0 1000000.0) :window (if local 512 nil) :qk-norm norm",
    "mistral": ":window 4096",
    "gpt2": "(self-attention dim heads :causal true :fused true)",
    "bert": "(bert-embedding vocab 512 dim)",
    "roberta": "(bert-embedding vocab 514 dim :types 1 :start 2 :epsilon 1e-5)",
    "xlm-roberta": "(defmodel xlm-roberta ()",
    "distilbert": "(bert-embedding vocab 512 dim :types 0)",
    "albert": "(through (repeat shared depth) x :mask mask)",
    "vit": "(param (list 1 197 dim))",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes a source of a configuration, with no weights but a classifier's."""
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file({"classifier.weight": np.zeros((1000, 2), np.float32)}, path)
    weights = open_source(path)
    return lambda values: Source("m", Configuration(values, "config.json"), weights, "transformers")


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_unknown(source: Any, name: str) -> None:
    found = source(MODELS[name])
    draft = draft_of(found)
    text = draft.text("w", "m")
    assert (found.configuration.unread(HARMLESS), draft.notes) == ([], [])
    assert SAID[name] in " ".join(text.split())
    assert text.count("\n") <= 62


def test_a_model_of_images_and_text(source: Any) -> None:
    with pytest.raises(SexpgpuError) as caught:
        draft_of(source({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}))
    assert caught.value.code == "E-IMPORT-002"
    assert caught.value.help == "of a model of images and text no part is taken"
