"""BERT."""

from __future__ import annotations

from sexpgpu.tools.importer.activations import activation_of
from sexpgpu.tools.importer.configuration import DEPTH_LIMIT, Configuration
from sexpgpu.tools.importer.encoder import (
    BUFFERS,
    HEADS,
    HeadNames,
    add_head,
    embedding_names,
    embedding_of,
    encoder_block,
    inputs_of,
    types_of,
    vectors,
    window_knob,
)
from sexpgpu.tools.importer.forms import call
from sexpgpu.tools.importer.heads import head_of
from sexpgpu.tools.importer.norms import norm_function
from sexpgpu.tools.importer.program import Draft, Knob
from sexpgpu.tools.importer.source import Source

_BLOCKS = {
    "attention.q": "attention.self.query",
    "attention.k": "attention.self.key",
    "attention.v": "attention.self.value",
    "attention.out": "attention.output.dense",
    "attention-norm": "attention.output.LayerNorm",
    "mlp.up": "intermediate.dense",
    "mlp.down": "output.dense",
    "mlp-norm": "output.LayerNorm",
}
_GGUF = {
    "embedding.tokens.w": "token_embd.weight",
    "embedding.positions.w": "position_embd.weight",
    "embedding.types.w": "token_types.weight",
    "embedding.norm": "token_embd_norm",
    "blocks": "blk",
    "attention.q": "attn_q",
    "attention.k": "attn_k",
    "attention.v": "attn_v",
    "attention.out": "attn_output",
    "attention-norm": "attn_output_norm",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
    "mlp-norm": "layer_output_norm",
}


def bert(source: Source) -> Draft:
    """Devlin et al. 2019, with its pooler and heads where the file has them."""
    configuration = source.configuration
    configuration.require("position_embedding_type", "absolute", why="positions are relative")
    configuration.require("is_decoder", False, why="the model reads from left to right")
    configuration.require("add_cross_attention", False, why="layers look at an encoder")
    notes: list[str] = []
    head = head_of(source, "Bert", (*HEADS, "ForPreTraining"), notes)
    prefix = source.prefix(("bert.", ""), "embeddings.word_embeddings.weight")
    # a file of what has no types, such as a DistilBERT, has no table of them
    untyped = source.is_gguf and not source.has(_GGUF["embedding.types.w"])
    types = 0 if untyped else types_of(configuration)
    inputs = inputs_of(types)
    epsilon = configuration.number("layer_norm_eps", 1e-12)
    activation = activation_of(configuration, "hidden_act", "gelu")
    draft = Draft(
        "bert",
        "a BERT (Devlin et al. 2019)",
        knobs_of(configuration),
        inputs.record,
        [
            "embedding", embedding_of(configuration, "dim", types, epsilon),
            "blocks", ["for", ["i", ["range", "depth"]], ["block"]],
        ],
        inputs.names,
        "hidden",
        _GGUF.copy() if source.is_gguf else names_of(prefix),
        steps=["x", vectors(inputs), "hidden", call("through", "blocks", "x", mask="mask")],
        prepare=inputs.prepare,
        definitions=[norm_function(epsilon), encoder_block(activation)],
        buffers=BUFFERS,
        notes=notes,
    )  # fmt: skip
    if untyped:
        del draft.renames["embedding.types.w"]
    if source.has(f"{prefix}embeddings.LayerNorm.gamma"):
        draft.norm_names = ("gamma", "beta")
    if source.is_gguf:
        draft.notes.append(
            "a GGUF file does not say the activation of a BERT: it is taken to be gelu, by erf"
        )
    names = HeadNames(
        f"{prefix}pooler.dense",
        "classifier",
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
        "cls.seq_relationship",
    )
    add_head(source, draft, head, names, "dim", activation)
    return draft


def knobs_of(configuration: Configuration, start: int = 0) -> list[Knob]:
    """The sizes, under the keys of BERT; `start` is the position of the first token."""
    return [
        window_knob(configuration, start),
        Knob("vocab", configuration.whole("vocab_size", 30522), "tokens that there are"),
        Knob("dim", configuration.whole("hidden_size", 768), "width of a token's vector"),
        Knob("depth", configuration.whole("num_hidden_layers", 12, most=DEPTH_LIMIT), "layers"),
        Knob("heads", configuration.whole("num_attention_heads", 12)),
        Knob("hidden", configuration.whole("intermediate_size", 3072), "width of an mlp"),
    ]


def names_of(prefix: str) -> dict[str, str]:
    """What transformers calls the parts below the head."""
    return {
        **embedding_names(prefix),
        "blocks": f"{prefix}encoder.layer",
        **_BLOCKS,
    }
