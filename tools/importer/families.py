"""The families of models that are known, by the `model_type` of their configurations."""

from __future__ import annotations

from collections.abc import Callable

from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.albert import albert
from sexpgpu.tools.importer.bert import bert
from sexpgpu.tools.importer.distilbert import distilbert
from sexpgpu.tools.importer.gemma import gemma, gemma2, gemma3
from sexpgpu.tools.importer.gpt2 import gpt2
from sexpgpu.tools.importer.llama import llama, mistral, qwen2, qwen3
from sexpgpu.tools.importer.printing import printable
from sexpgpu.tools.importer.program import Draft
from sexpgpu.tools.importer.roberta import camembert, roberta, xlm_roberta
from sexpgpu.tools.importer.source import Source
from sexpgpu.tools.importer.vit import vit

FAMILIES: dict[str, Callable[[Source], Draft]] = {
    "albert": albert,
    "bert": bert,
    "camembert": camembert,
    "distilbert": distilbert,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gpt2": gpt2,
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "roberta": roberta,
    "vit": vit,
    "xlm-roberta": xlm_roberta,
}

#: Keys of configurations that say nothing about what a trained model computes: of training, of
#: tokenizers, of how text is generated, of what a model returns beside its result.
HARMLESS = frozenset(
    """
    architectures attention_dropout attention_probs_dropout_prob _attn_implementation_autoset
    attn_pdrop bad_words_ids begin_suppress_tokens bos_token_id cache_implementation
    chunk_size_feed_forward classifier_dropout classifier_dropout_prob cls_token_id
    cross_attention_hidden_size decoder_start_token_id directionality diversity_penalty
    do_sample dtype early_stopping embd_pdrop encoder_no_repeat_ngram_size encoder_stride
    eos_token_id eos_token_ids exponential_decay_length_penalty finetuning_task
    _flash_attn_2_enabled forced_bos_token_id forced_eos_token_id gradient_checkpointing
    hidden_dropout_prob id2label initializer_range is_encoder_decoder is_llama_config
    keys_to_ignore_at_inference label2id length_penalty mask_token_id max_length min_length
    mlm_probability model_type n_ctx _name_or_path no_repeat_ngram_size num_beam_groups
    num_beams num_labels num_return_sequences output_attentions output_hidden_states output_past
    output_scores pad_token_id pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type prefix pretraining_tp problem_type remove_invalid_values
    repetition_penalty resid_pdrop return_dict return_dict_in_generate sep_token_id
    summary_activation summary_first_dropout summary_proj_to_labels summary_type
    summary_use_proj suppress_tokens task_specific_params temperature tf_legacy_loss
    tie_encoder_decoder tie_weights_ tie_word_embeddings tokenizer_class top_k top_p torch_dtype
    torchscript transformers.js_config transformers_version typical_p unsloth_fixed
    unsloth_version use_bfloat16 use_cache
    """.split()
)


def draft_of(source: Source) -> Draft:
    """The program of a model.

    Raises E-IMPORT-002 for a family or head that is not known, E-IMPORT-003 for a configuration
    that is damaged, E-IMPORT-004 for what no program is written for.
    """
    configuration = source.configuration
    kind = configuration.word("model_type", "")
    if kind not in FAMILIES:
        raise SexpgpuError(
            "E-IMPORT-002",
            "the model is of a family that is not known",
            place=configuration.place,
            came=f"model_type {printable(kind, 60) or 'nothing'}",
            expected=", ".join(FAMILIES),
            help="of a model of images and text no part is taken"
            if "text_config" in configuration
            else did_you_mean(kind, FAMILIES),
        )
    if configuration.take("quantization_config") is not None:
        configuration.unsupported(
            "quantization_config",
            "the weights are quantised, and stand in the file as something else",
            help="import the model as it was before, or its GGUF file",
        )
    configuration.require("pruned_heads", {}, why="heads have been taken out of some layers")
    configuration.words("architectures")
    return FAMILIES[kind](source)
