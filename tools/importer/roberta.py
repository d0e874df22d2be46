"""RoBERTa, and the models of other languages that are built like it."""

from __future__ import annotations

from sexpgpu.tools.importer.activations import activation_of
from sexpgpu.tools.importer.bert import knobs_of, names_of
from sexpgpu.tools.importer.encoder import (
    BUFFERS,
    HEADS,
    HeadNames,
    add_head,
    embedding_of,
    encoder_block,
    inputs_of,
    types_of,
    vectors,
)
from sexpgpu.tools.importer.forms import call
from sexpgpu.tools.importer.heads import head_of
from sexpgpu.tools.importer.norms import norm_function
from sexpgpu.tools.importer.program import Draft
from sexpgpu.tools.importer.source import Source


def roberta(source: Source) -> Draft:
    """Liu et al. 2019: a BERT whose positions are counted from behind that of padding."""
    return _draft(source, "Roberta", "roberta", "a RoBERTa (Liu et al. 2019)")


def xlm_roberta(source: Source) -> Draft:
    """Conneau et al. 2020: a RoBERTa of a hundred languages."""
    return _draft(source, "XLMRoberta", "xlm-roberta", "an XLM-RoBERTa (Conneau et al. 2020)")


def camembert(source: Source) -> Draft:
    """Martin et al. 2020: a RoBERTa of French."""
    return _draft(source, "Camembert", "camembert", "a CamemBERT (Martin et al. 2020)")


def _draft(source: Source, family: str, name: str, about: str) -> Draft:
    configuration = source.configuration
    configuration.require("position_embedding_type", "absolute", why="positions are relative")
    configuration.require("is_decoder", False, why="the model reads from left to right")
    configuration.require("add_cross_attention", False, why="layers look at an encoder")
    notes: list[str] = []
    head = head_of(source, family, HEADS, notes)
    prefix = source.prefix(("roberta.", ""), "embeddings.word_embeddings.weight")
    types = types_of(configuration)
    inputs = inputs_of(types)
    epsilon = configuration.number("layer_norm_eps", 1e-12)
    # the vector of this position is that of padding
    start = configuration.whole("pad_token_id", 1, least=0) + 1
    draft = Draft(
        name,
        about,
        knobs_of(configuration, start),
        inputs.record,
        [
            "embedding", embedding_of(configuration, "dim", types, epsilon, start),
            "blocks", ["for", ["i", ["range", "depth"]], ["block"]],
        ],
        inputs.names,
        "hidden",
        names_of(prefix),
        steps=["x", vectors(inputs), "hidden", call("through", "blocks", "x", mask="mask")],
        prepare=inputs.prepare,
        definitions=[
            norm_function(epsilon),
            encoder_block(activation_of(configuration, "hidden_act", "gelu")),
        ],
        buffers=BUFFERS,
        notes=notes,
    )  # fmt: skip
    of_texts = head == "ForSequenceClassification"
    names = HeadNames(
        "classifier.dense" if of_texts else f"{prefix}pooler.dense",
        "classifier.out_proj" if of_texts else "classifier",
        "lm_head.dense",
        "lm_head.layer_norm",
        "lm_head.decoder",
        "lm_head.bias",
    )
    # the head has its own activation, whatever that of the layers is
    add_head(source, draft, head, names, "dim", "gelu")
    return draft
