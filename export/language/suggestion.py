"""The nearest names to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: What other libraries call what has one name here, mostly an option.
_SYNONYMS = {
    "dim": "axis", "dims": "axis", "axes": "axis", "keepdim": "keep", "keepdims": "keep",
    "eps": "epsilon", "kernel-size": "size", "kernel": "size", "negative-slope": "slope",
    "unbiased": "correction", "ddof": "correction", "is-causal": "causal", "attn-mask": "mask",
    "approximate": "tanh",
}  # fmt: skip


def did_you_mean(word: str, names: Iterable[str], prefix: str = "") -> str | None:
    """A question with the names that are closest to `word`, three at most, or None.

    `prefix` is put before every name shown, such as the colon of keywords.
    """
    # A word of many thousand characters is compared by its beginning: difflib takes square time.
    word = word[:64]
    known = sorted(set(names))
    synonym = _SYNONYMS.get(word.replace("_", "-"))
    if synonym in known:
        return f"did you mean `{prefix}{synonym}`?"
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if not close:
        return None
    best = _likeness(word, close[0])
    likely = [name for name in close if _likeness(word, name) > best - 0.1]
    return "did you mean " + " or ".join([f"`{prefix}{name}`" for name in likely]) + "?"


def _likeness(word: str, name: str) -> float:
    return difflib.SequenceMatcher(None, name, word).ratio()


def misnamed(wanted: str, names: Iterable[str], prefix: str = "") -> str | None:
    """Which of `names` was probably meant to be `wanted`, or None."""
    close = difflib.get_close_matches(wanted, sorted(set(names)), n=1, cutoff=0.6)
    return f"rename `{prefix}{close[0]}` to `{prefix}{wanted}`" if close else None
