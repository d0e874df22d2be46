"""`sexpgpu inspect`: what it prints, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

from support.commands import Run, runner
from support.exports import MODELS, export


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


def test_an_export(cli: Run) -> None:
    export(MODELS["several outputs"], Path())
    status, out, err = cli("inspect", "export")
    lines = out.split("\n")
    assert (status, err) == (0, "")
    assert lines[0].startswith("export: export, ")
    assert lines[0].endswith(" KiB")
    assert "  checkpoint run/step-00000000" in lines
    assert "  precision  f32" in lines
    assert "  inputs     inputs [batch, 12] i32" in lines
    assert "  outputs    logits [batch, 12, 8] f32" in lines
    assert "             best [batch, 12] i32" in lines
    assert "    embed.w [40, 16] f32" in lines
    assert any(line.startswith("  operators  ") for line in lines)
    weights = next(line for line in lines if line.startswith("  weights"))
    assert weights == "  weights    13, 1,915 numbers"


def test_json(cli: Run) -> None:
    export(MODELS["gpt"], Path())
    status, out, _ = cli("inspect", "export", "--json")
    data = json.loads(out)
    assert status == 0
    assert data["kind"] == "export"
    assert data["inputs"] == [{"name": "inputs", "dtype": "i32", "shape": ["batch", 12]}]
    assert data["operators"]["LayerNormalization"] == 5
    assert data["files"]["model.onnx"] == Path("export/model.onnx").stat().st_size


def test_long_lists_are_cut_unless_all_is_asked_for(cli: Run) -> None:
    save_file({f"w.{i:02}": np.zeros(1, np.float32) for i in range(50)}, "many.safetensors")
    _, out, _ = cli("inspect", "many.safetensors")
    assert "    w.39 [1] f32\n    … 10 more (--all shows them)\n" in out
    _, out, _ = cli("inspect", "many.safetensors", "--all")
    assert "w.49 [1] f32\n" in out
    assert "more" not in out


def test_names_do_not_reach_the_terminal_as_they_are(cli: Run) -> None:
    helper = onnx.helper
    name = "\x1b[2Jevil\nname"
    value = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([], "g", [value], [value])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    Path("evil.onnx").write_bytes(model.SerializeToString())
    _, out, _ = cli("inspect", "evil.onnx")
    assert r"\x1b[2Jevil\nname [1] f32" in out
    assert "\x1b" not in out


def test_what_is_not_there(cli: Run) -> None:
    status, out, err = cli("inspect", "nowhere")
    assert (status, out) == (1, "")
    assert err == "error[E-FILE-001]: there is nothing at nowhere\n"
    status, out, _ = cli("inspect", ".", "--json")
    assert (status, json.loads(out)["error"]["code"]) == (1, "E-INSPECT-001")
