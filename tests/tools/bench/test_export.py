"""The command that compares exporters: what it keeps, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sexpgpu.tools.bench import export
from sexpgpu.tools.bench.export_models import MODELS
from sexpgpu.tools.bench.export_report import BEGIN, END
from sexpgpu.tools.bench.export_turns import OURS, THEIRS, UNVERIFIED, ContenderError, Found


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Figures are made up at once; the names of what was measured."""
    names: list[str] = []

    def measure(prepared: Any, effort: Any) -> Found:
        names.append(prepared)
        found = Found(weight_bytes=1000)
        for who, seconds in ((OURS, 1.0), (UNVERIFIED, 1.0), (THEIRS, 10.0)):
            found.seconds[who], found.peaks[who] = [seconds], [1 << 20]
            found.bytes[who], found.nodes[who], found.differences[who] = 1001, 9, 1e-7
            for batch in (1, 8):
                found.runs[who, batch] = [seconds]
        return found

    def prepare(model: Any, folder: Path) -> Any:
        (folder / model.name).mkdir(parents=True, exist_ok=True)
        return model.name

    monkeypatch.setattr(export, "measure", measure)
    monkeypatch.setattr(export, "prepare", prepare)
    for package in export.NEEDED:
        pytest.importorskip(package)
    return names


def test_figures_and_tables_are_written(measured: list[str], tmp_path: Path) -> None:
    page, figures = tmp_path / "page.md", tmp_path / "out.json"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    options = ["--folder", str(tmp_path), "--json", str(figures), "--write", str(page)]
    done = CliRunner().invoke(export.main, options)
    assert done.exit_code == 0, done.output
    assert measured == [*MODELS]
    assert list(json.loads(figures.read_text())["models"]) == measured
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.count("**ResNet-50**") == 1


def test_what_was_measured_is_kept(measured: list[str], tmp_path: Path) -> None:
    options = ["--folder", str(tmp_path), "--model", "gpt2"]
    for more in ([], ["--resume", "--model", "minilm"], []):
        assert CliRunner().invoke(export.main, [*options, *more]).exit_code == 0
    assert measured == ["gpt2", "minilm", "gpt2"]


def test_a_failure_is_told(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(prepared: Any, effort: Any) -> Found:
        raise ContenderError("MemoryError")

    monkeypatch.setattr(export, "measure", fails)
    done = CliRunner().invoke(export.main, ["--folder", str(tmp_path), "--model", "gpt2"])
    assert done.exit_code == 1
    assert "gpt2: MemoryError" in done.output
    assert not (tmp_path / "gpt2" / "figures.json").exists()


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "onnxscript" else name)
    done = CliRunner().invoke(export.main, ["--folder", str(tmp_path)])
    assert done.exit_code == 1
    assert "install onnxscript with pip" in done.output
