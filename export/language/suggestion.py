"""The nearest names to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, names: Iterable[str], prefix: str = "") -> str | None:
    """A question with up to three of `names` that are close to `word`, or None.

    `prefix` is put before every name shown, such as the colon of keywords.
    """
    # A word of many thousand characters is compared by its beginning: difflib takes square time.
    close = difflib.get_close_matches(word[:64], sorted(set(names)), n=3, cutoff=0.6)
    if not close:
        return None
    return "did you mean " + " or ".join([f"`{prefix}{name}`" for name in close]) + "?"
