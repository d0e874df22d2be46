"""Figures for people: numbers, counts and durations as short text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sexpgpu.export.language.training import LEARNING_RATE

_RATES = ("records_per_second", "tokens_per_second")


def number_text(value: int | float) -> str:
    """Four digits, always as many, for what changes in place: 3.214, 12.00, 1.200e-5, 34,567."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    size = abs(float(f"{value:.4g}"))
    if size == 0 or 1e-3 <= size < 1e4:
        return f"{value:#.4g}".rstrip(".")
    if 1e4 <= size < 1e6:
        return f"{value:,.0f}"
    return _short_exponent(f"{value:.3e}")


def short_text(value: int | float) -> str:
    """Three digits at most, for what is set and seldom changes: 0.001, 3e-4, 1.25e-5."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size == 0 or 1e-3 <= size < 1e4:
        return f"{value:.4g}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return _short_exponent(f"{mantissa.rstrip('0').rstrip('.')}e{exponent}")


def count_text(value: float) -> str:
    """Three digits and a letter for the thousands: 812, 12.3k, 1.20M."""
    for letter in ("", "k", "M", "G"):
        if abs(value) < 999.5 or letter == "G":
            break
        value /= 1000
    if letter == "" and value == round(value):
        return str(round(value))
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f}{letter}"


def duration_text(seconds: float) -> str:
    """The two largest units: 0.4s, 12s, 1m 20s, 1h 02m, 3d 4h."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 1:
        return f"{max(seconds, 0.0):.1f}s"
    whole = round(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d {hours % 24}h"
    if hours:
        return f"{hours}h {minutes % 60:02}m"
    if minutes:
        return f"{minutes}m {whole % 60:02}s"
    return f"{whole}s"


def values_text(values: Mapping[str, int | float]) -> str:
    """`loss 3.214, lr 3e-4, accuracy 0.9100`."""
    return ", ".join(" ".join(pair) for pair in labelled(values))


def labelled(values: Mapping[str, int | float]) -> list[tuple[str, str]]:
    """Each value's label and text, without the rates, which are shown in another way."""
    labels = []
    for name, value in values.items():
        if name == LEARNING_RATE:
            labels.append(("lr", short_text(value)))
        elif name not in _RATES:
            labels.append((printable(name), number_text(value)))
    return labels


def printable(text: str) -> str:
    """One line that cannot move a terminal's cursor."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _short_exponent(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}"
