"""Which ratios are made of two exporters' figures, and how they are written down."""

from __future__ import annotations

from typing import Any

import pytest

from sexpgpu.tools.bench.export_report import as_data, expectations, tables
from sexpgpu.tools.bench.export_turns import OURS, THEIRS, UNVERIFIED, Found


@pytest.fixture
def figures() -> dict[str, Any]:
    """Three rounds, of which the second is ten times as slow for both."""
    found = Found(weight_bytes=1000)
    for who, seconds in ((OURS, 2.0), (UNVERIFIED, 1.0), (THEIRS, 10.0)):
        found.seconds[who] = [seconds, 10 * seconds, seconds]
        found.peaks[who] = [100 << 20] * 3
    for who, run in ((OURS, 0.9), (THEIRS, 1.0)):
        found.runs[who, 1] = [run, 10 * run, run]
        found.runs[who, 8] = [8 * run, 80 * run, 8 * run]
        found.bytes[who] = 1005 if who == OURS else 1100
        found.nodes[who] = 300
        found.differences[who] = 2e-7
    return found.as_data()


def values(figures: dict[str, Any]) -> dict[str, tuple[float, bool]]:
    return {made.what: (round(made.value, 3), made.holds) for made in expectations("", figures)}


def test_ratios_are_of_the_same_round(figures: dict[str, Any]) -> None:
    assert values(figures) == {
        "export, verified, of torch.onnx's time": (0.2, True),
        "run of 1 record, of torch.onnx's time": (0.9, True),
        "run of 8 records, of torch.onnx's time": (0.9, True),
        "bytes on disk, of the weights'": (1.005, True),
        "difference from f64, of torch.onnx's": (1.0, True),
    }


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda f: f["export_rounds"].update({OURS: [2.6] * 3, THEIRS: [10.0] * 3}), "export"),
        (lambda f: f["run_rounds"]["1"].update({OURS: [1.1] * 3, THEIRS: [1.0] * 3}), "run of 1"),
        (lambda f: f["run_rounds"]["8"].update({OURS: [1.1] * 3, THEIRS: [1.0] * 3}), "run of 8"),
        (lambda f: f["exporters"][OURS].update(bytes=1011), "bytes"),
        (lambda f: f["exporters"][OURS].update(difference=2.1e-7), "difference"),
    ],
)
def test_what_does_not_hold(change: Any, what: str, figures: dict[str, Any]) -> None:
    change(figures)
    broken = [name for name, (_, holds) in values(figures).items() if not holds]
    assert len(broken) == 1
    assert broken[0].startswith(what)


def test_tables(figures: dict[str, Any]) -> None:
    for package in ("torch", "transformers", "onnxscript"):
        pytest.importorskip(package)
    data = as_data({"gpt2": figures}, threads=1)
    text = tables(data)
    assert "ONNX Runtime" in text
    assert "on 1 thread;" in text
    assert "**GPT-2 small** (`gpt2.sx`, a window of 128): 1000 B of weights." in text
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines()]
    ours = next(row for row in rows if row and row[0] == OURS)
    assert ours == [OURS, "2.00", "100 MiB", "1.0050", "300", "2.00e-07", "900.0", "7,200.0"]
    assert next(row for row in rows if row and row[0] == UNVERIFIED)[3:] == [""] * 5


def test_a_ratio_that_misses_by_little_is_seen_to(figures: dict[str, Any]) -> None:
    figures["exporters"][OURS].update(difference=2.002e-7)
    text = tables(as_data({"gpt2": figures}, threads=1))
    assert "| 1.001    | ≤ 1      | **no** |" in text
    assert "| 0.20     | ≤ 0.25   | yes    |" in text
