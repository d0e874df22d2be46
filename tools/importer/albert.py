"""ALBERT."""

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
from sexpgpu.tools.importer.forms import Form, atom, call
from sexpgpu.tools.importer.heads import head_of
from sexpgpu.tools.importer.norms import norm_function
from sexpgpu.tools.importer.program import Draft, Knob
from sexpgpu.tools.importer.source import Source


def albert(source: Source) -> Draft:
    """Lan et al. 2020: a BERT of narrow tables, whose layers share their weights."""
    configuration = source.configuration
    configuration.require("position_embedding_type", "absolute", why="positions are relative")
    configuration.require("is_decoder", False, why="the model reads from left to right")
    # of the first releases' own code, and never read by transformers
    for key in ("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"):
        configuration.take(key)
    notes: list[str] = []
    head = head_of(source, "Albert", (*HEADS, "ForPreTraining"), notes)
    prefix = source.prefix(("albert.", ""), "embeddings.word_embeddings.weight")
    types = types_of(configuration)
    inputs = inputs_of(types)
    epsilon = configuration.number("layer_norm_eps", 1e-12)
    activation = activation_of(configuration, "hidden_act", "gelu_new")
    groups = configuration.whole("num_hidden_groups", 1, most=DEPTH_LIMIT)
    inner = configuration.whole("inner_group_num", 1, most=DEPTH_LIMIT // groups)
    # nearly always one layer is all that there is
    is_one = groups == inner == 1
    shared: list[Form] = ["shared", ["block"]]
    layers: Form = ["repeat", "shared", "depth"]
    if not is_one:
        shared = ["groups", ["for", ["g", ["range", atom(groups)]], ["group"]]]
        layers = _layers(groups)
    draft = Draft(
        "albert",
        "an ALBERT (Lan et al. 2020)",
        _knobs(configuration),
        inputs.record,
        [
            "embedding", embedding_of(configuration, "narrow", types, epsilon),
            "widen", call("linear", "narrow", "dim", transposed=True),
            *shared,
        ],
        inputs.names,
        "hidden",
        _renames(prefix, is_one),
        steps=[
            "x", ["widen", vectors(inputs)],
            "hidden", call("through", layers, "x", mask="mask"),
        ],
        prepare=inputs.prepare,
        definitions=[
            norm_function(epsilon),
            encoder_block(activation),
            *([] if is_one else [_group(inner)]),
        ],
        buffers=BUFFERS,
        notes=notes,
    )  # fmt: skip
    names = HeadNames(
        f"{prefix}pooler",
        "classifier",
        "predictions.dense",
        "predictions.LayerNorm",
        "predictions.decoder",
        "predictions.bias",
        "sop_classifier.classifier",
    )
    add_head(source, draft, head, names, "narrow", activation)
    return draft


def _knobs(configuration: Configuration) -> list[Knob]:
    return [
        window_knob(configuration),
        Knob("vocab", configuration.whole("vocab_size", 30000), "tokens that there are"),
        Knob("narrow", configuration.whole("embedding_size", 128), "width of the tables"),
        Knob("dim", configuration.whole("hidden_size", 4096), "width of a token's vector"),
        Knob("depth", configuration.whole("num_hidden_layers", 12, most=DEPTH_LIMIT), "layers"),
        Knob("heads", configuration.whole("num_attention_heads", 64)),
        Knob("hidden", configuration.whole("intermediate_size", 16384), "width of an mlp"),
    ]


def _group(inner: int) -> Form:
    """Layers that are always applied together, as a model of their own."""
    return [
        "defmodel", "group", [],
        ["parts", "blocks", ["for", ["i", ["range", atom(inner)]], ["block"]]],
        ["apply", ["x", "&key", "mask"], ["through", "blocks", "x", ":mask", "mask"]],
    ]  # fmt: skip


def _layers(groups: int) -> Form:
    """The group of each layer: depth / groups layers that follow one another have the same."""
    which: Form = ["quotient", ["*", "i", atom(groups)], "depth"]
    return ["for", ["i", ["range", "depth"]], ["nth", "groups", which]]


def _renames(prefix: str, is_one: bool) -> dict[str, str]:
    groups = f"{prefix}encoder.albert_layer_groups"
    shared = {"groups": groups, "blocks": "albert_layers"}
    if is_one:
        shared = {"shared": f"{groups}.0.albert_layers.0"}
    return {
        **embedding_names(prefix),
        "widen": f"{prefix}encoder.embedding_hidden_mapping_in",
        **shared,
        "attention.q": "attention.query",
        "attention.k": "attention.key",
        "attention.v": "attention.value",
        "attention.out": "attention.dense",
        "attention-norm": "attention.LayerNorm",
        "mlp.up": "ffn",
        "mlp.down": "ffn_output",
        "mlp-norm": "full_layer_layer_norm",
    }
