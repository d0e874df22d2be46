"""`sexpgpu evaluate`: the numbers of a checkpoint, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.tools.train.metrics import read_metrics
from support.commands import Run, runner
from support.training import LINE, stop_after, train, write_line

TEXT = LINE.replace("{more}", ":evaluate-every 2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `line.sx`, its data, and a run `run` of 20 steps."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_line(folder, records=70)
        Path("line.sx").write_text(TEXT)
        train(Path("line.sx"), "run", knobs={"width": 3})
    return folder


@pytest.fixture
def cli(trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands there; the program is as it was, whatever the test before made of it."""
    monkeypatch.chdir(trained)
    Path("line.sx").write_text(TEXT)
    return runner(capsys)


AT = ("evaluate", "line.sx", "--checkpoint")


def test_text(cli: Run) -> None:
    status, out, err = cli(*AT, "run")
    assert (status, err) == (0, "")
    lines = out.split("\n")
    assert lines[:3] == [
        "evaluation: run/step-00000020, its averages",
        "  70 records of line.npz",
        f"  {'':5}  {'f32':>12}",
    ]
    assert [line.split()[0] for line in lines[3:-1]] == ["loss", "worst"]


def test_the_numbers_are_those_of_the_run(cli: Run) -> None:
    logged = {r.step: r.values for r in read_metrics("run") if r.kind == "evaluation"}
    for place, step in (("run", 20), ("run/step-00000010", 10)):
        status, out, _ = cli(*AT, place, "--json")
        data = json.loads(out)
        assert status == 0
        assert data == {
            "checkpoint": f"run/step-{step:08}",
            "step": step,
            "weights": data["weights"],
            "records": 70,
            "metrics": {"f32": logged[step]},
        }


def test_trained_weights_have_other_numbers(cli: Run) -> None:
    found = [json.loads(cli(*AT, "run", "--json", *more)[1]) for more in ([], ["--trained"])]
    assert found[0]["weights"] == "averages"
    assert "trained" in found[1]["weights"]
    assert found[0]["metrics"] != found[1]["metrics"]


def test_precisions_stand_side_by_side(cli: Run) -> None:
    both = ["--precision", "f32", "--precision", "bf16", "--precision", "f32"]
    status, out, _ = cli(*AT, "run", *both)
    assert status == 0
    header, *rows = out.split("\n")[2:-1]
    assert header.split() == ["f32", "bf16"]
    assert len({len(line) for line in (header, *rows)}) == 1
    metrics = json.loads(cli(*AT, "run", "--json", *both)[1])["metrics"]
    assert list(metrics) == ["f32", "bf16"]
    for row, name in zip(rows, ("loss", "worst"), strict=True):
        assert row.split() == [name, *(f"{metrics[p][name]:.6g}" for p in ("f32", "bf16"))]
        assert metrics["f32"][name] != metrics["bf16"][name]
        assert np.isclose(metrics["f32"][name], metrics["bf16"][name], rtol=0.05)


def test_the_variant_and_knobs_are_the_checkpoints(cli: Run) -> None:
    """A file whose knob's default has changed is compiled as it was for the run."""
    Path("line.sx").write_text(TEXT.replace("(defknob width 3)", "(defknob width 5)"))
    assert cli(*AT, "run")[0] == 0


def test_numbers_that_are_not_finite_are_text(cli: Run) -> None:
    Path("line.sx").write_text(TEXT.replace("(max (abs e))", "(log (- 0.0 (max (abs e))))"))
    assert json.loads(cli(*AT, "run", "--json")[1])["metrics"]["f32"]["worst"] == "nan"
    assert "nan" in cli(*AT, "run")[1]


# What it refuses


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("width 1)", "width 1 :bias false)", "E-CKPT-005", "the checkpoint's parameters are not"),
        ("(defn loss", "(defn lost", "E-RUN-009", "line.sx has no `loss`"),
        ("(defrun", "(def other (list", "E-RUN-009", "line.sx has no `defrun`"),
        ("(defknob width 3)", "(def width 3)", "E-KNOB-001", "the program has no knob `width`"),
        ('"line.npz"', '"lime.npz"', "E-DATA-001", "the arrays of lime.npz cannot be told"),
    ],
)
def test_another_file_is_refused(old: str, new: str, code: str, message: str, cli: Run) -> None:
    text = TEXT.replace(old, new) + (")" if old == "(defrun" else "")
    Path("line.sx").write_text(text)
    status, out, err = cli(*AT, "run")
    assert (status, out) == (1, "")
    assert err.startswith(f"error[{code}]: {message}")
    status, out, _ = cli(*AT, "run", "--json")
    assert (status, json.loads(out)["error"]["code"]) == (1, code)


def test_load_files_that_have_changed_are_refused(cli: Run) -> None:
    np.savez("given.npz", w=np.ones((3, 3), np.float32))
    net = """
(defmodel net ()
  (parts fixed (param (list 3 3) :load "given.npz" :key "w" :frozen true) out (linear 3 1))
  (apply (x) (out (matmul x fixed))))
(def model (net))
"""
    Path("line.sx").write_text(TEXT.replace("(def model (linear width 1))", net))
    train(Path("line.sx"), "loaded", stop=stop_after(1))
    assert cli(*AT, "loaded")[0] == 0
    np.savez("given.npz", w=np.zeros((3, 3), np.float32))
    status, _, err = cli(*AT, "loaded")
    assert status == 1
    assert err.startswith("error[E-LOAD-001]")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["evaluate", "line.sx"], "E-USAGE-001"),
        ([*AT, "run", "--precision", "f16"], "E-USAGE-001"),
        ([*AT, "run", "--device", "tpu"], "E-USAGE-001"),
        ([*AT, "nowhere"], "E-CKPT-001"),
        ([*AT, "run/step-00000019"], "E-CKPT-001"),
        ([*AT, "run", "--device", "cuda"], "E-DEVICE-001"),
        (["evaluate", "none.sx", "--checkpoint", "run"], "E-FILE-001"),
    ],
)
def test_what_is_not_there(arguments: list[str], code: str, cli: Run) -> None:
    if "cuda" in arguments:
        import jax

        if jax.default_backend() == "gpu":
            pytest.skip("there is a GPU")
    status, out, err = cli(*arguments)
    assert (status, out) == (2 if code == "E-USAGE-001" else 1, "")
    assert err.startswith(f"error[{code}]")
