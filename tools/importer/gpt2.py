"""GPT-2."""

from __future__ import annotations

from sexpgpu.tools.importer.activations import activation_of
from sexpgpu.tools.importer.configuration import DEPTH_LIMIT, Configuration
from sexpgpu.tools.importer.forms import Form, atom, call
from sexpgpu.tools.importer.heads import add_classifier, add_span, head_of, shares_table
from sexpgpu.tools.importer.norms import NORM, norm_function
from sexpgpu.tools.importer.program import Draft, Knob
from sexpgpu.tools.importer.source import Source

_HUGGINGFACE = {
    "attention-norm": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "mlp-norm": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
_GGUF = {
    "attention-norm": "attn_norm",
    "attention.qkv": "attn_qkv",
    "attention.out": "attn_output",
    "mlp-norm": "ffn_norm",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
}
#: Heads that give classes of every token, and their matrices.
_CLASSIFIERS = {"ForSequenceClassification": "score", "ForTokenClassification": "classifier"}
_SPAN = "ForQuestionAnswering"
#: Masks that older files hold.
_BUFFERS = (r".*\.attn\.bias", r".*\.attn\.masked_bias")


def gpt2(source: Source) -> Draft:
    """Radford et al. 2019: learned positions, queries, keys and values in one matrix."""
    configuration = source.configuration
    why = "layers look at an encoder"
    configuration.require("add_cross_attention", False, why=why)
    prefix = source.prefix(("transformer.", ""), "wte.weight")
    table = "token_embd.weight" if source.is_gguf else f"{prefix}wte.weight"
    head = "output" if source.is_gguf else "lm_head"
    notes: list[str] = []
    kind = head_of(source, "GPT2", ("LMHeadModel", "Model", *_CLASSIFIERS, _SPAN), notes)
    predicts = kind == "LMHeadModel"
    own_head = predicts and not shares_table(source, head, table, True, notes)
    renames = {
        "tokens": table,
        "positions": "position_embd.weight" if source.is_gguf else f"{prefix}wpe.weight",
        "blocks": "blk" if source.is_gguf else f"{prefix}h",
        **(_GGUF if source.is_gguf else _HUGGINGFACE),
        "norm": "output_norm" if source.is_gguf else f"{prefix}ln_f",
    }
    parts = _parts(configuration)
    hidden: Form = ["norm", ["through", "blocks", _vectors()]]
    body: Form = ["matmul", hidden, ["transpose", "tokens"]]
    if not predicts:
        body = call("list", hidden=hidden)
    elif own_head:
        renames["head"] = head
        parts += ["head", call("linear", "dim", "vocab", bias=False, transposed=True)]
        body = ["head", hidden]
    draft = Draft(
        "gpt2",
        "a GPT-2 (Radford et al. 2019): the next token",
        _knobs(configuration),
        ["def", "record", ["fields", ":tokens", ["list", "i32", "window"]]],
        parts,
        ["ids"],
        body,
        renames,
        definitions=[
            norm_function(configuration.number("layer_norm_epsilon", 1e-5)),
            _block(configuration, source.is_gguf),
        ],
        buffers=_BUFFERS,
        notes=notes,
    )
    if kind in _CLASSIFIERS:
        add_classifier(source, draft, _CLASSIFIERS[kind], hidden)
    elif kind == _SPAN:
        add_span(draft, hidden)
    elif not predicts:
        draft.tells("tokens' vectors")
    return draft


def _vectors() -> Form:
    return ["+", ["take", "tokens", "ids"], ["slice", "positions", ":to", "window"]]


def _knobs(configuration: Configuration) -> list[Knob]:
    dim = configuration.whole("n_embd", 768)
    positions = configuration.whole("n_positions", 1024)
    return [
        Knob("window", min(128, positions), f"tokens that the model sees, at most {positions:,}"),
        Knob("vocab", configuration.whole("vocab_size", 50257), "tokens that there are"),
        Knob("dim", dim, "width of the residual stream"),
        Knob("depth", configuration.whole("n_layer", 12, most=DEPTH_LIMIT), "layers"),
        Knob("heads", configuration.whole("n_head", 12)),
        Knob("hidden", configuration.whole("n_inner", 4 * dim), "width of an mlp"),
    ]


def _parts(configuration: Configuration) -> list[Form]:
    positions = atom(configuration.whole("n_positions", 1024))
    block: Form = ["block", "i"] if _is_by_layer(configuration) else ["block"]
    return [
        "tokens", ["param", ["list", "vocab", "dim"]],
        "positions", ["param", ["list", positions, "dim"]],
        "blocks", ["for", ["i", ["range", "depth"]], block],
        "norm", NORM,
    ]  # fmt: skip


def _block(configuration: Configuration, transposed: bool) -> Form:
    activation = activation_of(configuration, "activation_function", "gelu_new")
    configuration.take("reorder_and_upcast_attn")
    scale = _scale(configuration)
    attention = call(
        "self-attention", "dim", "heads",
        causal=True,
        fused=True,
        scale=scale,
        transposed=transposed or None,
    )  # fmt: skip
    mlp = call(
        "mlp", "dim", "hidden", "dim",
        activation=None if activation == "gelu" else activation,
        transposed=transposed or None,
    )  # fmt: skip
    names = ["i"] if _is_by_layer(configuration) else []
    return ["defn", "block", names, call("pre-norm-block", NORM, attention, NORM, mlp)]


def _is_by_layer(configuration: Configuration) -> bool:
    return configuration.flag("scale_attn_by_inverse_layer_idx", False)


def _scale(configuration: Configuration) -> Form | None:
    """What the scores are multiplied by, where it is not 1/√(width of a head)."""
    scaled = configuration.flag("scale_attn_weights", True)
    if not _is_by_layer(configuration):
        return None if scaled else "1.0"
    root: Form = ["sqrt", ["/", "dim", "heads"]]
    return ["/", "1.0", ["+", "i", "1"], *([root] if scaled else [])]
