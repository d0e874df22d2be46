"""What stands on top of a model, by its configuration and its file."""

from __future__ import annotations

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.forms import Form, call
from sexpgpu.tools.importer.printing import listed, printable
from sexpgpu.tools.importer.program import Draft, Knob
from sexpgpu.tools.importer.source import Source


def head_of(source: Source, family: str, heads: tuple[str, ...], notes: list[str]) -> str:
    """Which head the model has, by `architectures`: "Model", "ForMaskedLM" …; else the first.

    Raises E-IMPORT-002 for one that is not known.
    """
    configuration = source.configuration
    names = configuration.words("architectures")
    below = f"{family}{_below(heads)}"
    if names != [below]:
        source.below = below
    if not names:
        notes.append(
            f"the configuration has no `architectures`: it is taken for a {family}{heads[0]}"
        )
        return heads[0]
    head = names[0].removeprefix(family)
    if head not in heads:
        raise SexpgpuError(
            "E-IMPORT-002",
            "the model has a head that is not known",
            place=configuration.place,
            came=printable(names[0], 60),
            expected=", ".join(f"{family}{head}" for head in heads),
            help=f"what is below the head is read as another class: --as {below}",
        )
    return head


def _below(heads: tuple[str, ...]) -> str:
    """Of some heads that of the model without one."""
    return next(head for head in heads if head in ("Model", "TextModel"))


def classes_of(source: Source, key: str) -> int:
    """How many classes a classifier tells apart, by its weights.  Raises E-IMPORT-005."""
    shape = source.weights.describe(key)[1] if source.has(key) else ()
    if not shape:
        raise SexpgpuError(
            "E-IMPORT-005",
            f"the file has no classifier `{key}`",
            place=str(source.weights.path),
            came=f"architectures {listed(source.configuration.words('architectures'))}",
            help=f"what is below the head is read as another class: --as {source.below}",
        )
    return shape[0]


def add_classifier(source: Source, draft: Draft, name: str, of: Form) -> None:
    """Makes the draft give scores of classes, by the matrix `name`, of the form `of`."""
    biased = source.has(f"{name}.bias")
    draft.biased |= biased
    draft.tells("classes")
    draft.knobs.append(Knob("classes", classes_of(source, f"{name}.weight")))
    bias = None if biased else False
    draft.parts += ["classifier", call("linear", "dim", "classes", bias=bias, transposed=True)]
    draft.renames["classifier"] = name
    draft.body = call("list", logits=["classifier", of])


def add_span(draft: Draft, of: Form) -> None:
    """Makes the draft score where in a text an answer begins and ends, by tokens' vectors `of`."""
    draft.biased = True
    draft.tells("where an answer begins and ends")
    draft.parts += ["span", call("linear", "dim", "2", transposed=True)]
    draft.renames["span"] = "qa_outputs"
    draft.steps += ["ends", ["span", of]]
    start, end = (["take", "ends", place, ":axis", "2"] for place in "01")
    draft.body = call("list", start=start, end=end)


def shares_table(source: Source, head: str, table: str, default: bool, notes: list[str]) -> bool:
    """Whether the head `head`, without `.weight`, is the tensor `table`, as transformers decides.

    Tied ones are where the configuration says so, unless the file has another head after all.
    """
    tied = source.configuration.flag("tie_word_embeddings", default)
    own = f"{head}.weight"
    if not tied or not source.has(own) or not source.has(table) or source.is_twin(own, table):
        return tied
    notes.append(
        f"tie_word_embeddings is true, but the file has another `{own}`, which is used, as "
        "transformers does"
    )
    return False
