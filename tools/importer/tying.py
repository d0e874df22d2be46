"""Whether the head of a language model is the table of its tokens."""

from __future__ import annotations

from sexpgpu.tools.importer.source import Source


def shares_table(source: Source, head: str, table: str, default: bool, notes: list[str]) -> bool:
    """Whether the head `head`, without `.weight`, is the tensor `table`, as transformers decides.

    Tied ones are where the configuration says so, unless the file has another head after all.
    """
    tied = source.configuration.flag("tie_word_embeddings", default)
    own = f"{head}.weight"
    if not tied or not source.has(own) or not source.has(table) or source.is_same(own, table):
        return tied
    notes.append(
        f"tie_word_embeddings is true, but the file has another `{own}`, which is used, as "
        "transformers does"
    )
    return False
