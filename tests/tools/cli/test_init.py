"""`sexpgpu init`: a checkpoint of initial weights, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sexpgpu.tools import cli

NET = """(def record (fields :x (list f32 8)))
(defknob dim 4)
(defmodel net () (parts l (linear 8 dim)) (apply (x) (l x)))
(def model (net))
"""


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("net.sx")
    path.write_text(NET)
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["init", *arguments])
    code = caught.value.code
    assert isinstance(code, int)
    return code


def test_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("net.sx", "--checkpoint-dir", "run") == 0
    place = capsys.readouterr().out
    assert place.endswith("run/step-00000000: 2 parameters, 144 B\n")
    assert sorted(file.name for file in (tmp_path / "run" / "step-00000000").iterdir()) == [
        "checkpoint.json",
        "model.json",
        "params.safetensors",
    ]


def test_options_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--step", "20", "--seed", "3", "--knob", "dim=5", "--json"]
    assert run("net.sx", "--checkpoint-dir", "run", *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["checkpoint"].endswith("run/step-00000020")
    assert (found["step"], found["parameters"], found["bytes"]) == (20, 2, 180)
    assert found["holds_model"] is True


def test_seeds_differ(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        assert run("net.sx", "--checkpoint-dir", f"run{seed}", "--seed", seed) == 0
    one, two = (
        (tmp_path / f"run{seed}" / "step-00000000" / "params.safetensors").read_bytes()
        for seed in "12"
    )
    assert len(one) == len(two)
    assert one != two


def test_a_model_that_cannot_run_alone_is_noted_in_the_seeds_words(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(NET.replace("(l x))", "(list (l x) l))"))
    assert run("net.sx", "--checkpoint-dir", "run") == 0
    assert capsys.readouterr().err == (
        "note: the checkpoint holds no model, so it runs only from the file:\n"
        "error[E-INFER-001]: a model run alone returns tensors, in lists and plists; "
        "`output.1` is a model\n"
    )
    assert run("net.sx", "--checkpoint-dir", "run", "--step", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["holds_model"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (["net.sx"], "E-USAGE-001", 2),
        (["net.sx", "--checkpoint-dir", "run", "--step", "-1"], "E-USAGE-001", 2),
        (["net.sx", "--checkpoint-dir", "nowhere://run"], "E-LOC-001", 1),
        (["none.sx", "--checkpoint-dir", "run"], "E-FILE-001", 1),
    ],
)
def test_what_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, status: int
) -> None:
    assert run(*arguments) == status
    assert f"error[{code}]" in capsys.readouterr().err
