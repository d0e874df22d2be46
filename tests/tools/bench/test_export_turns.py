"""Exporters by turns, of a small model: that both export the same, and how failures are told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.reference import evaluate
from sexpgpu.tools.bench import export_turns
from sexpgpu.tools.bench.export_models import Model, Prepared, prepare
from sexpgpu.tools.bench.export_ours import subject_of
from sexpgpu.tools.bench.export_report import expectations
from sexpgpu.tools.bench.export_turns import (
    EXPORTERS,
    OURS,
    THEIRS,
    ContenderError,
    Effort,
    measure,
    share_of_largest,
)

SHORT = Effort(exports=1, rounds=2, seconds=0.0)
SMALL = Model("gpt2", "", "gpt2.sx", {"window": 8, "vocab": 50, "dim": 32, "depth": 1, "heads": 2})


def evaluate_here(prepared: Prepared, out: Path) -> None:
    """What the program means, in place of a process that evaluates their model."""
    subject = subject_of(prepared.description())
    graph = subject.model.graph
    with np.load(prepared.inputs) as stored:
        given = {value.name: stored[k] for value, k in zip(graph.inputs, stored, strict=True)}
    np.savez(out, *evaluate(graph, given, subject.read).values())


def test_both_export_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch", "transformers", "onnxscript"):
        pytest.importorskip(package)
    finish = export_turns._finish

    def finish_or_evaluate(command: list[str], *, speaks: bool = True) -> dict[str, Any]:
        if "evaluate" not in command:
            return finish(command, speaks=speaks)
        evaluate_here(prepared, Path(command[-1]))
        return {}

    monkeypatch.setattr(export_turns, "_finish", finish_or_evaluate)
    # Threads of small products wait for each other longer than they compute.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    prepared = prepare(SMALL, tmp_path)
    found = measure(prepared, SHORT)
    for who in EXPORTERS:
        assert found.seconds[who][0] > 0
        assert found.peaks[who][0] > 1 << 20
    for who in (OURS, THEIRS):
        assert 0 < found.differences[who] < 1e-5
        assert found.nodes[who] > 20
        assert found.bytes[who] > found.weight_bytes > 1000
        assert [len(found.runs[who, batch]) for batch in (1, 8)] == [2, 2]
    assert len([*expectations("gpt2", found.as_data())]) == 5


def test_a_process_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(who: str, prepared: Prepared) -> list[str]:
        return [sys.executable, "-c", "raise RuntimeError('no more')"]

    monkeypatch.setattr(export_turns, "_export_command", command)
    with pytest.raises(ContenderError, match="RuntimeError: no more"):
        measure(Prepared(SMALL, tmp_path), SHORT)


def test_a_difference_is_a_share_of_the_largest_number() -> None:
    wanted = np.array([[1.0, -4.0], [2.0, 0.0]])
    assert share_of_largest(wanted.astype(np.float32), wanted) == 0
    assert share_of_largest(wanted + np.array([[0, 0], [0.5, 0]]), wanted) == 0.125
    with pytest.raises(ContenderError, match="an output is"):
        share_of_largest(wanted[:1], wanted)
