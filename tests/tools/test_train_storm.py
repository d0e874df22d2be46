"""The storm over training: that it kills, follows runs to their ends, and sees what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sexpgpu.tools.train_storm import Storm, compare, files
from support.commands import environment


def test_a_gust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    storm = Storm(tmp_path, seed=1)
    storm.rage(2, 600.0)
    report = storm.report
    assert report.wrong == []
    assert report.kills.total() == 2
    assert report.runs >= 1
    assert Path(tmp_path / "run-0").is_dir()
    # A file that a run left alone does not leave is seen.
    (tmp_path / "run-0/notes").touch()
    storm.finish("run-0")
    assert report.wrong == ["run-0: notes is left"]


def test_the_comparison_sees_what_is_otherwise(tmp_path: Path) -> None:
    for location in (tmp_path / "one", tmp_path / "other"):
        (location / "step-00000001").mkdir(parents=True)
        (location / "step-00000001/params.safetensors").write_bytes(b"same")
        lines = [{"step": n, "kind": k} for n in (1, 2) for k in ("train", "evaluation")]
        (location / "metrics.jsonl").write_text("".join(json.dumps(n) + "\n" for n in lines))
    whole, other = files(tmp_path / "one"), tmp_path / "other"
    assert compare(whole, other, 2, 1) == []
    assert compare(whole, other, 3, 1) == [
        "the log does not have every train once, in order",
        "the log does not have every evaluation once, in order",
    ]
    (other / "step-00000001/params.safetensors").write_bytes(b"else")
    (other / ".step-00000002.removed").mkdir()
    (other / "more").touch()
    assert compare(whole, other, 2, 1) == [
        "more is left",
        "step-00000001/params.safetensors has other bits",
        ".step-00000002.removed is left",
    ]
    (other / "step-00000001/params.safetensors").unlink()
    assert "step-00000001/params.safetensors is missing" in compare(whole, other, 2, 1)
