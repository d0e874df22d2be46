"""What BERT and its kin have in common: their inputs, their pooler, and the heads on top."""

from __future__ import annotations

from dataclasses import dataclass

from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.forms import Form, atom, call
from sexpgpu.tools.importer.heads import add_classifier, add_span, shares_table
from sexpgpu.tools.importer.norms import NORM
from sexpgpu.tools.importer.program import Draft, Knob
from sexpgpu.tools.importer.source import Source

#: The heads that all have.
HEADS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)

#: Positions that older files count out.
BUFFERS = (r".*embeddings\.position_ids", r".*embeddings\.token_type_ids")


@dataclass(frozen=True)
class Inputs:
    """The fields of a record, and what the model is called with."""

    record: Form
    prepare: Form
    names: list[str]


def types_of(configuration: Configuration) -> int:
    """How many texts a record may have."""
    return configuration.whole("type_vocab_size", 2)


def inputs_of(types: int) -> Inputs:
    """Token ids, where they are tokens and no padding, and of which of some texts they are."""
    has_types = types > 1
    fields: list[Form] = ["fields", ":tokens", ["list", "i32", "window"]]
    fields += [":mask", ["list", "bool", "window"]]
    if has_types:
        fields += [":types", ["list", "i32", "window"]]
    names = [":tokens", ":mask", *([":types"] if has_types else [])]
    inputs: Form = ["list", *(["get", "record", name] for name in names)]
    return Inputs(
        ["def", "record", fields],
        ["defn", "prepare", ["record"], call("list", inputs=inputs)],
        ["ids", "mask", *(["kinds"] if has_types else [])],
    )


def embedding_of(
    configuration: Configuration, width: str, types: int, epsilon: float, start: int = 0
) -> Form:
    """The tables of tokens, positions and types, and the norm of their sum.

    `start` is the position of the first token.
    """
    return call(
        "bert-embedding", "vocab", atom(configuration.whole("max_position_embeddings", 512)), width,
        types=None if types == 2 else types,
        start=start or None,
        epsilon=None if epsilon == 1e-12 else epsilon,
    )  # fmt: skip


def vectors(inputs: Inputs) -> Form:
    """What is made of the tokens first."""
    return call("embedding", "ids", kinds="kinds" if "kinds" in inputs.names else None)


def embedding_names(prefix: str) -> dict[str, str]:
    """What transformers calls the tables and their norm."""
    names = {
        "tokens.w": "word_embeddings.weight",
        "positions.w": "position_embeddings.weight",
        "types.w": "token_type_embeddings.weight",
        "norm": "LayerNorm",
    }
    return {f"embedding.{part}": f"{prefix}embeddings.{name}" for part, name in names.items()}


def window_knob(configuration: Configuration, start: int = 0) -> Knob:
    """The knob `window`, no longer than there are positions from the first token's on."""
    positions = configuration.whole("max_position_embeddings", 512, least=start + 1) - start
    return Knob("window", min(128, positions), f"tokens of a record, at most {positions:,}")


@dataclass(frozen=True)
class HeadNames:
    """What a file calls the parts on top of the blocks."""

    pooler: str
    classifier: str
    transform: str
    norm: str
    decoder: str
    bias: str
    relation: str = ""
    #: What the pooler ends with.
    pooling: str = "tanh"


def add_head(
    source: Source, draft: Draft, head: str, names: HeadNames, width: str, activation: Form
) -> None:
    """Adds to the draft, whose last step is `hidden`, what the head makes of that.

    `width` is that of tokens' vectors.
    """
    if head == "Model":
        _pool(source, draft, names)
    elif head in ("ForMaskedLM", "ForPreTraining"):
        outputs = {"logits": _predict(source, draft, names, width, activation)}
        if head == "ForPreTraining":
            # Whether the second text follows the first.
            pooled = _add_pooler(draft, names)
            draft.parts += ["relation", call("linear", "dim", "2", transposed=True)]
            draft.renames["relation"] = names.relation
            outputs["relation"] = ["relation", pooled]
        draft.body = call("list", **outputs)
    elif head == "ForSequenceClassification":
        # Of the whole, by what the pooler makes of the first token.
        add_classifier(source, draft, names.classifier, _add_pooler(draft, names))
    elif head == "ForTokenClassification":
        add_classifier(source, draft, names.classifier, "hidden")
    else:
        add_span(draft, "hidden")


def _pool(source: Source, draft: Draft, names: HeadNames) -> None:
    if not source.has(f"{names.pooler}.weight"):
        draft.notes.append("the file has no pooler, and the model gives each token's vector alone")
        draft.body = call("list", hidden="hidden")
        return
    draft.body = call("list", hidden="hidden", pooled=_add_pooler(draft, names))


def _add_pooler(draft: Draft, names: HeadNames) -> Form:
    """Adds what makes one vector of the first token's, and gives that vector."""
    draft.parts += ["pooler", call("linear", "dim", "dim", transposed=True)]
    draft.renames["pooler"] = names.pooler
    return [names.pooling, ["pooler", ["take", "hidden", "0", ":axis", "1"]]]


_TABLE: Form = ["get", ["get", "embedding", ":tokens"], ":w"]


def _predict(source: Source, draft: Draft, names: HeadNames, width: str, activation: Form) -> Form:
    """What each token may be, by a head that is the table of tokens where it is tied."""
    table = draft.renames["embedding.tokens.w"]
    tied = shares_table(source, names.decoder, table, True, draft.notes)
    epsilon = source.configuration.number("layer_norm_eps", 1e-12)
    norm = NORM if width == "dim" else call("layer-norm", width, epsilon=epsilon)
    draft.parts += ["transform", call("linear", "dim", width, transposed=True)]
    draft.parts += ["head-norm", norm]
    draft.renames |= {"transform": names.transform, "head-norm": names.norm}
    own_bias = f"{names.decoder}.bias"
    shared = tied and source.has(names.bias)
    if shared and source.has(own_bias) and not source.is_twin(own_bias, names.bias):
        shared = False
    bias = names.bias if shared or not source.has(own_bias) else own_bias
    draft.steps += ["guess", ["head-norm", [activation, ["transform", "hidden"]]]]
    if tied:
        logits: Form = ["matmul", "guess", ["transpose", _TABLE]]
    else:
        draft.parts += ["head", call("linear", width, "vocab", bias=False, transposed=True)]
        draft.renames["head"] = names.decoder
        logits = ["head", "guess"]
    draft.parts += ["head-bias", call("param", ["list", "vocab"])]
    draft.renames["head-bias"] = bias
    return ["+", logits, "head-bias"]


def encoder_block(activation: Form) -> Form:
    """The definition of a layer, which all have in common."""
    mlp = call(
        "mlp", "dim", "hidden", "dim",
        activation=None if activation == "gelu" else activation,
        transposed=True,
    )  # fmt: skip
    attention = call("self-attention", "dim", "heads", transposed=True)
    return ["defn", "block", [], call("post-norm-block", attention, NORM, mlp, NORM)]
