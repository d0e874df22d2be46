"""ViT."""

from __future__ import annotations

from sexpgpu.tools.importer.activations import activation_of
from sexpgpu.tools.importer.configuration import DEPTH_LIMIT, Configuration
from sexpgpu.tools.importer.forms import Form, atom, call
from sexpgpu.tools.importer.heads import classes_of, head_of
from sexpgpu.tools.importer.norms import NORM, norm_function
from sexpgpu.tools.importer.program import Draft, Knob
from sexpgpu.tools.importer.source import Source

_HEADS = ("Model", "ForImageClassification")


def vit(source: Source) -> Draft:
    """Dosovitskiy et al. 2021: an image as a sequence of patches."""
    configuration = source.configuration
    notes: list[str] = []
    head = head_of(source, "ViT", _HEADS, notes)
    prefix = source.prefix(("vit.", ""), "embeddings.cls_token")
    knobs, places = _knobs(configuration)
    draft = Draft(
        "vit",
        "a ViT (Dosovitskiy et al. 2021)",
        knobs,
        ["def", "record", ["fields", ":image", ["list", "f32", "channels", "size", "size"]]],
        [
            "patches", ["patch-embedding", "channels", "dim", "patch"],
            "class", ["param", ["list", "1", "1", "dim"]],
            "positions", ["param", ["list", "1", atom(places + 1), "dim"]],
            "blocks", ["for", ["i", ["range", "depth"]], ["block"]],
            "norm", NORM,
        ],
        ["image"],
        "hidden",
        _renames(prefix),
        steps=[
            "x", ["+", ["prepend", "class", ["patches", "image"]], "positions"],
            "hidden", ["norm", ["through", "blocks", "x"]],
        ],
        definitions=[
            norm_function(configuration.number("layer_norm_eps", 1e-12)),
            _block(configuration),
        ],
        notes=notes,
    )  # fmt: skip
    if head == "ForImageClassification":
        for key in ("pooler_act", "pooler_output_size"):
            configuration.take(key)
        draft.knobs.append(Knob("classes", classes_of(source, "classifier.weight")))
        draft.parts += ["classifier", call("linear", "dim", "classes", transposed=True)]
        draft.renames["classifier"] = "classifier"
        logits: Form = ["classifier", ["take", "hidden", "0", ":axis", "1"]]
        draft.body = call("list", logits=logits)
    else:
        _pool(source, draft, prefix)
    return draft


def _pool(source: Source, draft: Draft, prefix: str) -> None:
    configuration = source.configuration
    width = configuration.whole("pooler_output_size", configuration.whole("hidden_size", 768))
    activation = activation_of(configuration, "pooler_act", "tanh")
    if not source.has(f"{prefix}pooler.dense.weight"):
        draft.notes.append("the file has no pooler, and the model gives each patch's vector alone")
        draft.body = call("list", hidden="hidden")
        return
    draft.parts += ["pooler", call("linear", "dim", atom(width), transposed=True)]
    draft.renames["pooler"] = f"{prefix}pooler.dense"
    pooled: Form = [activation, ["pooler", ["take", "hidden", "0", ":axis", "1"]]]
    draft.body = call("list", hidden="hidden", pooled=pooled)


def _knobs(configuration: Configuration) -> tuple[list[Knob], int]:
    """The knobs, and how many patches an image has."""
    size = configuration.whole("image_size", 224)
    patch = configuration.whole("patch_size", 16)
    if patch > size:
        configuration.wrong("patch_size", f"at most image_size, {size}")
    knobs = [
        Knob("size", size, "pixels of an image's side"),
        Knob("patch", patch, "pixels of a patch's side"),
        Knob("channels", configuration.whole("num_channels", 3)),
        Knob("dim", configuration.whole("hidden_size", 768), "width of a patch's vector"),
        Knob("depth", configuration.whole("num_hidden_layers", 12, most=DEPTH_LIMIT), "layers"),
        Knob("heads", configuration.whole("num_attention_heads", 12)),
        Knob("hidden", configuration.whole("intermediate_size", 3072), "width of an mlp"),
    ]
    return knobs, (size // patch) ** 2


def _block(configuration: Configuration) -> Form:
    activation = activation_of(configuration, "hidden_act", "gelu")
    bias = configuration.flag("qkv_bias", True)
    attention = call(
        "self-attention", "dim", "heads",
        bias=None if bias else False,
        out_bias=None if bias else True,
        transposed=True,
    )  # fmt: skip
    mlp = call(
        "mlp", "dim", "hidden", "dim",
        activation=None if activation == "gelu" else activation,
        transposed=True,
    )  # fmt: skip
    return ["defn", "block", [], call("pre-norm-block", NORM, attention, NORM, mlp)]


def _renames(prefix: str) -> dict[str, str]:
    return {
        "patches.conv": f"{prefix}embeddings.patch_embeddings.projection",
        "class": f"{prefix}embeddings.cls_token",
        "positions": f"{prefix}embeddings.position_embeddings",
        "blocks": f"{prefix}encoder.layer",
        "attention-norm": "layernorm_before",
        "attention.q": "attention.attention.query",
        "attention.k": "attention.attention.key",
        "attention.v": "attention.attention.value",
        "attention.out": "attention.output.dense",
        "mlp-norm": "layernorm_after",
        "mlp.up": "intermediate.dense",
        "mlp.down": "output.dense",
        "norm": f"{prefix}layernorm",
    }
