"""DistilBERT."""

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
    vectors,
    window_knob,
)
from sexpgpu.tools.importer.forms import call
from sexpgpu.tools.importer.heads import head_of
from sexpgpu.tools.importer.norms import norm_function
from sexpgpu.tools.importer.program import Draft, Knob
from sexpgpu.tools.importer.source import Source

_BLOCKS = {
    "attention.q": "attention.q_lin",
    "attention.k": "attention.k_lin",
    "attention.v": "attention.v_lin",
    "attention.out": "attention.out_lin",
    "attention-norm": "sa_layer_norm",
    "mlp.up": "ffn.lin1",
    "mlp.down": "ffn.lin2",
    "mlp-norm": "output_layer_norm",
}


def distilbert(source: Source) -> Draft:
    """Sanh et al. 2019: a BERT of half the layers, without types and pooler."""
    configuration = source.configuration
    # such positions stand in the file like others, and what is dropped in training never is here
    for key in ("sinusoidal_pos_embds", "dropout", "qa_dropout", "seq_classif_dropout"):
        configuration.take(key)
    notes: list[str] = []
    head = head_of(source, "DistilBert", HEADS, notes)
    prefix = source.prefix(("distilbert.", ""), "embeddings.word_embeddings.weight")
    inputs = inputs_of(0)
    activation = activation_of(configuration, "activation", "gelu")
    names = embedding_names(prefix)
    del names["embedding.types.w"]
    draft = Draft(
        "distilbert",
        "a DistilBERT (Sanh et al. 2019)",
        _knobs(configuration),
        inputs.record,
        [
            "embedding", embedding_of(configuration, "dim", 0, 1e-12),
            "blocks", ["for", ["i", ["range", "depth"]], ["block"]],
        ],
        inputs.names,
        call("list", hidden="hidden"),
        {**names, "blocks": f"{prefix}transformer.layer", **_BLOCKS},
        steps=["x", vectors(inputs), "hidden", call("through", "blocks", "x", mask="mask")],
        prepare=inputs.prepare,
        definitions=[norm_function(1e-12), encoder_block(activation)],
        buffers=BUFFERS,
        notes=notes,
    )  # fmt: skip
    parts = HeadNames(
        "pre_classifier",
        "classifier",
        "vocab_transform",
        "vocab_layer_norm",
        "vocab_projector",
        "vocab_projector.bias",
        pooling="relu",
    )
    if head != "Model":
        add_head(source, draft, head, parts, "dim", activation)
    return draft


def _knobs(configuration: Configuration) -> list[Knob]:
    return [
        window_knob(configuration),
        Knob("vocab", configuration.whole("vocab_size", 30522), "tokens that there are"),
        Knob("dim", configuration.whole("dim", 768), "width of a token's vector"),
        Knob("depth", configuration.whole("n_layers", 6, most=DEPTH_LIMIT), "layers"),
        Knob("heads", configuration.whole("n_heads", 12)),
        Knob("hidden", configuration.whole("hidden_dim", 3072), "width of an mlp"),
    ]
