"""`sexpgpu check`: what it prints, for people and as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sexpgpu.tools import cli

NET = """(def record (fields :x (list f32 8)))
(defknob dim 4 "width")
(defknob act :gelu)
(defvariant wide :dim 6)
(defmodel net ()
  (parts l (linear 8 dim) v (param dim :load "v.npz" :key "k" :frozen true))
  (apply (x) (list :y (+ (l x) v) :kind (argmax (l x)))))
(def model (net))
(defn loss (p r) (list :loss (mean (get p :y)) :size (max (get p :y))))
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("net.sx")
    path.write_text(NET)
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["check", *arguments])
    code = caught.value.code
    assert isinstance(code, int)
    return code


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run("net.sx", "--json", *arguments) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_what_is_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("net.sx") == 0
    assert capsys.readouterr().out == (
        "net.sx: 3 parameters, 40 numbers, 160 B\n"
        "  knobs   dim 4, act :gelu\n"
        "  inputs  inputs [1, 8] f32\n"
        "  outputs y [1, 4] f32\n"
        "          kind [1] i32\n"
        "  alone   yes, 6 operations\n"
        "  batch   records pass through independently\n"
        "  trains  loss, size\n"
        "  parameters\n"
        "    l    36\n"
        "      w  32  [8, 4] f32\n"
        "      b  4  [4] f32\n"
        "    v    4  [4] f32 frozen from v.npz\n"
    )


def test_a_program_without_knobs_loss_or_parameters(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text("(def record (fields :x f32))\n(defn model (x) (relu x))")
    assert run("net.sx") == 0
    assert capsys.readouterr().out == (
        "net.sx: 0 parameters, 0 numbers, 0 B\n"
        "  inputs  inputs [1] f32\n"
        "  outputs output [1] f32\n"
        "  alone   yes, 1 operation\n"
        "  batch   records pass through independently\n"
    )


def test_the_same_as_data(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys)
    assert found["file"] == "net.sx"
    assert (found["slug"], found["variant"], found["precision"]) == ("net", None, "f32")
    assert found["knobs"] == {"dim": 4, "act": ":gelu"}
    assert found["inputs"] == [{"name": "inputs", "shape": [1, 8], "dtype": "f32"}]
    assert [output["name"] for output in found["outputs"]] == ["y", "kind"]
    assert found["parameter_count"] == 40
    assert found["parameters"][1] == {
        "path": "l.b",
        "shape": [4],
        "dtype": "f32",
        "elements": 4,
        "init": "(zeros)",
        "load": None,
        "key": None,
        "frozen": False,
    }
    assert found["parameters"][2] | {"elements": 0} == {
        "path": "v",
        "shape": [4],
        "dtype": "f32",
        "elements": 0,
        "init": None,
        "load": "v.npz",
        "key": "k",
        "frozen": True,
    }
    assert (found["runs_alone"], found["nodes"]) == (True, 6)
    assert (found["trains"], found["metrics"]) == (True, ["loss", "size"])
    assert found["batch_independent"] is True
    assert "why_not_alone" not in found
    assert "why_not_independent" not in found


def test_variant_and_knobs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "--variant", "wide")
    assert (found["variant"], found["slug"], found["knobs"]["dim"]) == ("wide", "net-wide", 6)
    found = data(capsys, "--variant", "wide", "--knob", "dim=5", "--knob", "act=relu")
    assert found["knobs"] == {"dim": 5, "act": ":relu"}
    assert run("net.sx", "--variant", "wide") == 0
    assert capsys.readouterr().out.startswith("net.sx, variant wide: ")


def test_a_model_that_cannot_run_alone(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(NET.replace(":kind (argmax (l x))", ":kind l"))
    assert run("net.sx") == 0
    shown = capsys.readouterr().out
    assert "  alone   no:\n    error[E-INFER-001]: a model run alone returns tensors" in shown
    assert "`kind` is a model\n" in shown
    assert "inputs" not in shown.split("alone")[0]
    found = data(capsys)
    assert (found["runs_alone"], found["nodes"], found["inputs"]) == (False, None, [])
    assert found["why_not_alone"]["code"] == "E-INFER-001"
    assert "batch_independent" not in found


def test_records_that_meet(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text("(def record (fields :x f32))\n(defn model (x) (- x (mean x)))")
    assert run("net.sx") == 0
    assert "records are not independent: `output`: `mean` at net.sx:2:22" in capsys.readouterr().out
    found = data(capsys)
    assert found["batch_independent"] is False
    assert found["why_not_independent"]["operation"] == "mean"
    assert found["why_not_independent"]["source"] == "net.sx:2:22"


def test_an_error_names_the_file_the_line_and_the_call_stack(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(NET.replace("(linear 8 dim)", "(linear 9 dim)"))
    assert run("net.sx") == 1
    assert capsys.readouterr().err == (
        "error[E-SHAPE-001]: the inner axes of `matmul` differ\n"
        " --> net.sx:7:26\n"
        "  |\n"
        "7 |   (apply (x) (list :y (+ (l x) v) :kind (argmax (l x)))))\n"
        "  |                          ^^^^^\n"
        "  = came: [batch, 8] f32 and [9, 4] f32\n"
        "  = expected: 8, the last axis of `a`, to be 9, the rows of `b`\n"
        "  = help: `(transpose b)` swaps the last two axes\n"
        "  = note: it went wrong in `linear`, at layers/linear.sx:6:13: "
        "(matmul x (if transposed (transpose w) w))\n"
        "    in linear, called at net.sx:7:26\n"
        "    in net\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (["none.sx"], "E-FILE-001", 1),
        (["net.sx", "--variant", "wid"], "E-KNOB-002", 1),
        (["net.sx", "--knob", "dims=3"], "E-KNOB-001", 1),
        (["net.sx", "--knob", "dim=x"], "E-KNOB-003", 1),
        (["net.sx", "--knob", "dim"], "E-USAGE-001", 2),
    ],
)
def test_what_is_refused(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: str,
    status: int,
) -> None:
    assert run(*arguments) == status
    assert f"error[{code}]" in capsys.readouterr().err
