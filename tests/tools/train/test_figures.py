"""Figures: short, and as people write them."""

from __future__ import annotations

import math

import pytest

from sexpgpu.tools.train.figures import (
    count_text,
    duration_text,
    labelled,
    number_text,
    printable,
    short_text,
    values_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.2141234, "3.214"),
        (3.0, "3.000"),
        (0.0, "0.000"),
        (-0.5, "-0.5000"),
        (0.001234, "0.001234"),
        (0.0001234, "1.234e-4"),
        (12.0, "12.00"),
        (1234.4, "1234"),
        (9999.6, "10,000"),
        (999999.9, "1.000e6"),
        (34567.8, "34,568"),
        (1.5e12, "1.500e12"),
        (1e-300, "1.000e-300"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (1234567, "1,234,567"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.001, "0.001"),
        (3e-4, "3e-4"),
        (1.25e-5, "1.25e-5"),
        (0, "0"),
        (1.0, "1"),
        (2e6, "2e6"),
        (math.inf, "inf"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7.25, "7.25"),
        (12.34, "12.3"),
        (812, "812"),
        (812.4, "812"),
        (999.6, "1.00k"),
        (12345, "12.3k"),
        (1.2e6, "1.20M"),
        (3.4e9, "3.40G"),
        (2e13, "20000G"),
    ],
)
def test_counts(value: float, text: str) -> None:
    assert count_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0s"),
        (0.44, "0.4s"),
        (12.4, "12s"),
        (59.7, "1m 00s"),
        (80, "1m 20s"),
        (3599.8, "1h 00m"),
        (3725, "1h 02m"),
        (90061, "1d 1h"),
        (math.inf, "?"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_values_stand_by_their_labels() -> None:
    values = {"loss": 3.2, "learning_rate": 3e-4, "records_per_second": 12.0, "top 5": 1}
    assert labelled(values) == [("loss", "3.200"), ("lr", "3e-4"), ("top 5", "1")]
    assert values_text(values) == "loss 3.200, lr 3e-4, top 5 1"


def test_nothing_moves_a_cursor() -> None:
    assert printable("a\x1b[2Jb\nc\u202e\u00e9") == "a?[2Jb?c?é"
