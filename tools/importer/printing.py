"""Texts out of files of strangers, as a terminal or a comment may show them."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str, limit: int = 80) -> str:
    """A name out of a file as a comment may show it: on one line, nothing that is not seen."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(shown.split())[:limit]


def listed(names: Sequence[str], limit: int = 20) -> str:
    """Some names and how many there are more."""
    shown = ", ".join(printable(name) for name in names[:limit])
    return shown + (f" and {len(names) - limit:,} more" if len(names) > limit else "")
