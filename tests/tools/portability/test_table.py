"""Outcomes as Markdown."""

from __future__ import annotations

from typing import Any

import pytest

from sexpgpu.tools.portability.table import _time, tables


def outcome(runtime: str, example: str, verdict: str = "agrees", **others: Any) -> dict[str, Any]:
    return {
        "runtime": runtime,
        "example": example,
        "profile": "portable",
        "form": "",
        "verdict": verdict,
        "difference": 3.2e-7,
        "seconds": 0.00123,
        "reason": "",
        **others,
    }


def data(*outcomes: dict[str, Any]) -> dict[str, Any]:
    reasons = {"scan": {"because": "It has no Scan.", "instead": "`--unroll` writes steps."}}
    return {
        "machine": {
            "date": "2026-11-30",
            "cpu": "a CPU",
            "cores": 2,
            "system": "Linux 6",
            "python": "3.11.7",
            "load_at_end": 0.5,
        },
        "runtimes": {
            "a": {"title": "Runtime A", "packages": ["a==1"], "reasons": {}},
            "b": {"title": "Runtime B", "packages": ["@b/b@2", "a==1"], "reasons": reasons},
        },
        "outcomes": list(outcomes),
        "not_set_up": {},
        "skipped": {},
        "wrong_pages": {},
    }


def test_a_row_for_each_example_and_a_column_for_each_runtime() -> None:
    text = tables(data(outcome("a", "tiny"), outcome("b", "tiny", seconds=2.5)))
    lines = text.splitlines()
    assert lines[0] == (
        "2026-11-30: a CPU, 2 cores, Linux 6, Python 3.11.7, @b/b 2, a 1; load 0.5 at the end."
    )
    assert lines[2] == "**portable**"
    assert [line.split("|")[1:-1] for line in lines[4:7:2]] == [
        [" example ", " Runtime A      ", " Runtime B    "],
        [" tiny    ", " 3e-07, 1.23 ms ", " 3e-07, 2.5 s "],
    ]


def test_a_cell_that_fails_says_why_and_what_gets_round_it() -> None:
    text = tables(
        data(
            outcome("b", "lstm", "load", reason="scan"),
            outcome("b", "lstm", form="unrolled"),
            outcome("b", "gru", "load", reason="scan"),
            outcome("b", "mlp", "differs"),
        )
    )
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert "**load** [1]; unrolled: 3e-07, 1.23 ms" in rows[1]
    assert "**load** [1] " in rows[2]
    assert "**differs** ?" in rows[3]
    assert text.count("1. Runtime B: It has no Scan. `--unroll` writes steps.") == 1


def test_profiles_have_tables_of_their_own() -> None:
    text = tables(data(outcome("a", "tiny"), outcome("b", "mlp", profile="fused")))
    portable, fused = text.split("**fused**")
    assert "tiny" in portable
    assert "mlp" not in portable
    assert "Runtime B" in fused
    assert "Runtime A" not in fused


def test_what_was_not_run_is_said() -> None:
    given = data(outcome("a", "tiny"))
    given["not_set_up"] = {"b": "there is no npm"}
    given["wrong_pages"] = {"a": "its python block fails: no such file"}
    given["skipped"] = {"odd": "E-INFER-001: it cannot run alone"}
    text = tables(given)
    assert "Runtime B was not set up: there is no npm." in text
    assert "The lines on the page of Runtime A fail: its python block fails: no such file." in text
    assert "`odd` was not exported: E-INFER-001: it cannot run alone." in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0000167, "0.0167 ms"), (0.99949, "999 ms"), (0.9996, "1 s"), (1.0, "1 s"), (72.0, "72 s")],
)
def test_times(seconds: float, text: str) -> None:
    assert _time(seconds) == text
