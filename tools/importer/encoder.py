"""What BERT and its kin have in common: their inputs, their pooler, and the heads on top."""

from __future__ import annotations

from dataclasses import dataclass

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.forms import Form, atom, call
from sexpgpu.tools.importer.program import Draft, Knob
from sexpgpu.tools.importer.source import Source
from sexpgpu.tools.importer.tying import shares_table

#: Positions that older files count out.
BUFFERS = (r".*embeddings\.position_ids", r".*embeddings\.token_type_ids")


@dataclass(frozen=True)
class Inputs:
    """The fields of a record, and what the model is called with."""

    record: Form
    prepare: Form
    names: list[str]


def inputs_of(configuration: Configuration) -> Inputs:
    """Token ids, where they are tokens and no padding, and of which of two texts they are."""
    has_types = configuration.whole("type_vocab_size", 2) > 1
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


def vectors(inputs: Inputs) -> Form:
    """The sum of the tables of tokens, positions and types, normalised."""
    types: Form = ["take", "types", "kinds" if "kinds" in inputs.names else "0"]
    places: Form = ["slice", "positions", ":to", "window"]
    return ["norm", ["+", ["take", "tokens", "ids"], places, types]]


def tables(configuration: Configuration, width: str) -> list[Form]:
    """The parts that hold them."""
    positions = configuration.whole("max_position_embeddings", 512)
    types = configuration.whole("type_vocab_size", 2)
    counts = {"tokens": "vocab", "positions": atom(positions), "types": atom(types)}
    parts: list[Form] = []
    for name, count in counts.items():
        parts += [name, call("param", ["list", count, width])]
    return parts


def window_knob(configuration: Configuration) -> Knob:
    """The knob `window`, no longer than there are positions."""
    positions = configuration.whole("max_position_embeddings", 512)
    return Knob("window", min(128, positions), f"tokens of a record, at most {positions:,}")


def head_of(source: Source, family: str, heads: tuple[str, ...]) -> str:
    """Which head the model has, by `architectures`: "Model", "ForMaskedLM" ….

    Raises E-IMPORT-002 for one that is not known.
    """
    configuration = source.configuration
    names = configuration.words("architectures") or [f"{family}Model"]
    head = names[0].removeprefix(family)
    if head not in heads:
        raise SexpgpuError(
            "E-IMPORT-002",
            "the model has a head that is not known",
            place=configuration.place,
            came=names[0][:60],
            expected=", ".join(f"{family}{head}" for head in heads),
        )
    return head


@dataclass(frozen=True)
class HeadNames:
    """What a file calls the parts on top of the blocks."""

    pooler: str
    classifier: str
    transform: str
    norm: str
    decoder: str
    bias: str


def add_head(
    source: Source, draft: Draft, head: str, names: HeadNames, width: str, activation: Form
) -> None:
    """Adds to the draft, whose last step is `hidden`, what the head makes of that.

    `width` is that of tokens' vectors.
    """
    if head == "Model":
        _pool(source, draft, names)
    elif head == "ForMaskedLM":
        _predict(source, draft, names, width, activation)
    else:
        _classify(source, draft, names, pooled=head == "ForSequenceClassification")


def _pool(source: Source, draft: Draft, names: HeadNames) -> None:
    if not source.has(f"{names.pooler}.weight"):
        draft.notes.append("the file has no pooler, and the model gives each token's vector alone")
        draft.body = call("list", hidden="hidden")
        return
    _add_pooler(draft, names)
    draft.body = call("list", hidden="hidden", pooled=_POOLED)


_POOLED: Form = ["tanh", ["pooler", ["take", "hidden", "0", ":axis", "1"]]]


def _add_pooler(draft: Draft, names: HeadNames) -> None:
    draft.parts += ["pooler", call("linear", "dim", "dim", transposed=True)]
    draft.renames["pooler"] = names.pooler


def _classify(source: Source, draft: Draft, names: HeadNames, *, pooled: bool) -> None:
    """Classes of the whole by what the pooler makes of the first token, or of every token."""
    draft.knobs.append(Knob("classes", classes_of(source, f"{names.classifier}.weight")))
    if pooled:
        _add_pooler(draft, names)
    draft.parts += ["classifier", call("linear", "dim", "classes", transposed=True)]
    draft.renames["classifier"] = names.classifier
    draft.body = call("list", logits=["classifier", _POOLED if pooled else "hidden"])


def _predict(source: Source, draft: Draft, names: HeadNames, width: str, activation: Form) -> None:
    """What each token may be, by a head that is the table of tokens where it is tied."""
    tied = shares_table(source, names.decoder, draft.renames["tokens"], True, draft.notes)
    norm = draft.parts[draft.parts.index("norm") + 1]
    draft.parts += ["transform", call("linear", "dim", width, transposed=True)]
    draft.parts += ["head-norm", [*norm[:1], width, *norm[2:]]]
    draft.renames |= {"transform": names.transform, "head-norm": names.norm}
    own_bias = f"{names.decoder}.bias"
    shared = tied and source.has(names.bias)
    if shared and source.has(own_bias) and not source.is_same(own_bias, names.bias):
        shared = False
    bias = names.bias if shared or not source.has(own_bias) else own_bias
    draft.steps += ["guess", ["head-norm", [activation, ["transform", "hidden"]]]]
    if tied:
        logits: Form = ["matmul", "guess", ["transpose", "tokens"]]
    else:
        draft.parts += ["head", call("linear", width, "vocab", bias=False, transposed=True)]
        draft.renames["head"] = names.decoder
        logits = ["head", "guess"]
    draft.parts += ["head-bias", call("param", ["list", "vocab"])]
    draft.renames["head-bias"] = bias
    draft.body = call("list", logits=["+", logits, "head-bias"])


def classes_of(source: Source, key: str) -> int:
    """How many classes a classifier tells apart, by its weights.  Raises E-IMPORT-005."""
    configuration = source.configuration
    for name in ("id2label", "label2id", "num_labels", "problem_type"):
        configuration.take(name)
    if not source.has(key):
        raise SexpgpuError(
            "E-IMPORT-005",
            f"the file does not hold `{key}`",
            place=str(source.weights.path),
            came=f"architectures {configuration.words('architectures')}",
            help="a model without its head is named by `architectures`, such as BertModel",
        )
    return source.weights.describe(key)[1][0]
