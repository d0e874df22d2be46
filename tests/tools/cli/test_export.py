"""`sexpgpu export`: its messages, its flags, and what it leaves whatever happens to it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sexpgpu.export.operations.operation import all_operations
from support.commands import Run, command, environment, run_alone, runner
from support.exports import MODELS
from support.programs import GPT

TINY = """
(defknob window 16)
(defknob dim 8 "width")
(defvariant wide :dim 16)
(def record (fields :tokens (list i32 window)))
(defmodel net () (parts e (embedding 32 dim) head (linear dim 32)) (apply (t) (head (e t))))
(def model (net))
"""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands in a directory with `tiny.sx` and a checkpoint `run` of its first step."""
    monkeypatch.chdir(tmp_path)
    run = runner(capsys)
    Path("tiny.sx").write_text(TINY)
    assert run("init", "tiny.sx", "--checkpoint-dir", "run", "--step", 20)[0] == 0
    return run


def digest(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
    }


# What it writes


def test_steps_that_are_written_out(cli: Run, tmp_path: Path) -> None:
    Path("lstm.sx").write_text(MODELS["lstm"])
    assert cli("init", "lstm.sx", "--checkpoint-dir", "lstm")[0] == 0
    written = {}
    for flags in ((), ("--unroll",)):
        assert cli("export", "--checkpoint", "lstm", "-o", "out", *flags)[0] == 0
        _, out, _ = cli("inspect", "out", "--json")
        written[flags] = json.loads(out)["operators"]
    assert "LSTM" in written[()]
    assert not {"LSTM", "Scan"} & {*written["--unroll",]}


# What it says


def test_from_a_checkpoint(cli: Run) -> None:
    status, out, err = cli("export", "--checkpoint", "run", "-o", "out")
    assert status == 0
    assert out == (
        "export: run/step-00000020\n"
        "wrote out: 3 weights, 2.1 KiB\n"
        "  inputs  inputs [1, 16] i32\n"
        "  outputs output [1, 16, 32] f32\n"
    )
    assert err.startswith("verified the whole model in ONNX Runtime, 2 runs\n  output  difference ")


def test_several_inputs_and_outputs_are_lined_up(cli: Run) -> None:
    Path("several.sx").write_text(MODELS["inputs and weights as outputs"])
    cli("init", "several.sx", "--checkpoint-dir", "several")
    _, out, _ = cli("export", "--checkpoint", "several", "-o", "out")
    assert out.split("\n")[1:] == [
        "wrote out: 1 weight, 12 B",
        "  inputs  inputs.0 [1, 4] f32",
        "          inputs.1 [1, 4] i32",
        "  outputs same [1, 4] f32",
        "          also [1, 4] f32",
        "          weight [3] f32",
        "          once [1, 4] f32",
        "          twice [1, 4] f32",
        "          limit [2] f32",
        "          whole [1, 4] i32",
        "",
    ]


def test_from_a_file_and_a_checkpoint_the_lines_that_moved_are_said(cli: Run) -> None:
    status, out, _ = cli("export", "tiny.sx", "--checkpoint", "run", "-o", "out")
    assert (status, out.split("\n")[:2]) == (
        0,
        ["export: run/step-00000020", "wrote out: 3 weights, 2.1 KiB"],
    )
    Path("tiny.sx").write_text("; edited\n" + TINY)
    status, out, _ = cli("export", "tiny.sx", "--checkpoint", "run", "-o", "out")
    lines = out.split("\n")
    assert status == 0
    assert lines[0] == "export: run/step-00000020"
    assert lines[1].startswith("  ")
    assert "tiny.sx" in lines[1]
    assert lines[2].startswith("wrote out: ")


def test_a_file_of_other_parameters_is_refused(cli: Run) -> None:
    Path("tiny.sx").write_text(TINY.replace("embedding 32", "embedding 33"))
    status, _, err = cli("export", "tiny.sx", "--checkpoint", "run", "-o", "out")
    assert (status, err.split("]")[0]) == (1, "error[E-CKPT-005")
    assert not Path("out").exists()


def test_from_a_file_alone_every_parameter_is_loaded(cli: Run) -> None:
    status, _, err = cli("export", "tiny.sx", "-o", "out")
    assert (status, err.split("\n")[0]) == (1, "error[E-EXPORT-004]: 3 parameters have no values")
    assert "`e.w`, `head.w`, `head.b`" in err
    save_file({"w": np.eye(4, dtype=np.float32)}, "w.safetensors")
    Path("loaded.sx").write_text(
        "(def record (fields :x (list f32 4)))\n(defknob times 1)\n"
        '(defmodel net () (parts w (param (list 4 4) :load "w.safetensors" :key "w"))\n'
        "  (apply (x) (* times (matmul x w))))\n(def model (net))\n"
    )
    status, out, _ = cli("export", "loaded.sx", "-o", "out", "--knob", "times=3")
    assert (status, out.split("\n")[:2]) == (
        0,
        ["export: loaded.sx", "wrote out: 1 weight, 64 B"],
    )


def test_the_variant_is_the_checkpoints(cli: Run) -> None:
    cli("init", "tiny.sx", "--checkpoint-dir", "wide", "--variant", "wide")
    _, out, _ = cli("export", "tiny.sx", "--checkpoint", "wide", "-o", "out")
    assert "3 weights, 4.1 KiB" in out


def test_trained_weights_or_their_averages(cli: Run) -> None:
    Path("tiny.sx").write_text(
        TINY + '(defrun :train (text "data.txt" :window 16 :symbols 32) :steps 1 :batch 1 '
        ":optimizer (sgd :lr 0.1) :ema 0.9)"
    )
    Path("data.txt").write_text("abc" * 100)
    status, _, err = cli("init", "tiny.sx", "--checkpoint-dir", "ema")
    if status:
        pytest.fail(err)
    step = Path("ema/step-00000000")
    averages = load_file(step / "ema.safetensors")
    assert averages
    for flags, name in (([], "ema"), (["--trained"], "params")):
        assert cli("export", "--checkpoint", "ema", "-o", "out", *flags)[0] == 0
        want, found = load_file(step / f"{name}.safetensors"), load_file("out/params.safetensors")
        assert {k: v.tobytes() for k, v in want.items()} == {
            k: v.tobytes() for k, v in found.items()
        }


def test_json(cli: Run) -> None:
    status, out, err = cli("export", "--checkpoint", "run", "-o", "out", "--json", "--at")
    data = json.loads(out)
    assert (status, err) == (0, "")
    output = data["verification"]["outputs"].pop("output")
    assert 0 <= output["largest_relative"] <= output["tolerance"]
    assert output["largest_absolute"] >= 0
    assert data == {
        "from": "run/step-00000020",
        "moved": [],
        "directory": "out",
        "checkpoint": "run/step-00000020",
        "step": 20,
        "slug": data["slug"],
        "precision": "f32",
        "inputs": [
            {"name": "inputs", "shape": [1, 16], "dtype": "i32"},
            {"name": "at", "shape": [1], "dtype": "i32"},
        ],
        "outputs": [{"name": "output", "shape": [1, 1, 32], "dtype": "f32"}],
        "weights": 3,
        "weight_bytes": 2176,
        "files": {p.name: p.stat().st_size for p in Path("out").iterdir()},
        "verification": {"checked": "the whole model", "runs": 2, "outputs": {}},
    }


def test_json_without_verification(cli: Run) -> None:
    _, out, _ = cli("export", "--checkpoint", "run", "-o", "out", "--json", "--no-verify")
    assert json.loads(out)["verification"] is None


def test_json_of_an_error(cli: Run) -> None:
    status, out, err = cli("export", "--checkpoint", "run", "-o", "tiny.sx", "--json")
    assert (status, json.loads(out)["error"]["code"]) == (1, "E-EXPORT-001")
    assert err.startswith("error[E-EXPORT-001]: tiny.sx was not made by an export")


def test_not_verified_is_said(cli: Run) -> None:
    _, _, err = cli("export", "--checkpoint", "run", "-o", "out", "--no-verify")
    assert err == "not verified: --no-verify\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out"], "nothing to export"),
        (["--checkpoint", "run"], "missing option '-o'"),
        (["tiny.sx", "-o", "out", "--trained"], "--trained chooses among a checkpoint's weights"),
        (
            ["tiny.sx", "--checkpoint", "run", "-o", "out", "--variant", "wide"],
            "a checkpoint records its variant and knobs; they cannot be given again",
        ),
        (
            ["tiny.sx", "--checkpoint", "run", "-o", "out", "--knob", "dim=3"],
            "a checkpoint records its variant and knobs; they cannot be given again",
        ),
        (["--checkpoint", "run", "-o", "out", "--batch", "0"], "invalid value for '--batch'"),
        (["--checkpoint", "run", "-o", "out", "--opset", "x"], "invalid value for '--opset'"),
        (["--checkpoint", "run", "-o", "out", "--precision", "f16"], "invalid value for"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, cli: Run) -> None:
    status, out, err = cli("export", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"error[E-USAGE-001]: {message}")
    assert not Path("out").exists()


def test_a_wrong_artifact_has_its_own_status(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    matmul = type(all_operations()["take"])
    right = matmul.lower

    def lower(self: Any, onnx: Any, *given: Any) -> Any:
        (name,) = right(self, onnx, *given)
        return [onnx.add("Neg", name)]

    monkeypatch.setattr(matmul, "lower", lower)
    status, out, err = cli("export", "--checkpoint", "run", "-o", "out")
    assert (status, out) == (3, "export: run/step-00000020\n")
    assert err.startswith("error[E-VERIFY-001]: ONNX Runtime gives other numbers for `output`")
    assert "--no-verify writes it all the same" in err
    assert sorted(p.name for p in Path().iterdir()) == ["run", "tiny.sx"]


def test_what_stands_there_is_looked_at_before_anything_is_done(cli: Run) -> None:
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    status, out, err = cli("export", "--checkpoint", "nowhere", "-o", "out")
    assert (status, out) == (1, "")
    assert err.startswith("error[E-EXPORT-001]: out was not made by an export")


# The same every time


@pytest.mark.parametrize("flags", [[], ["--at", "--precision", "bf16", "--weights", "bf16"]])
def test_the_same_bytes_elsewhere(flags: list[str], tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        directory = tmp_path / f"place {seed}"
        directory.mkdir()
        (directory / "program.sx").write_text(MODELS["several outputs"])
        done = run_alone(directory, "init", "program.sx", "--checkpoint-dir", "run")
        assert done.returncode == 0, done.stderr
        arguments = ["export", "program.sx", "--checkpoint", "run", "-o", "out", *flags]
        done = run_alone(directory, *arguments, PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        found.append(digest(directory / "out"))
    assert found[0] == found[1]


# Killed, or without room


@pytest.fixture
def run_of_gpt(tmp_path: Path) -> Path:
    """A directory with a checkpoint `run`."""
    (tmp_path / "gpt.sx").write_text(GPT)
    done = run_alone(tmp_path, "init", "gpt.sx", "--checkpoint-dir", "run")
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_killed_at_any_moment_nothing_half_written_stands(run_of_gpt: Path) -> None:
    """Kills exports over an export, later and later; what stands is one of the two, whole."""
    arguments = ["export", "--checkpoint", "run", "-o", "out"]
    commands = [command(*arguments), command(*arguments, "--weights", "bf16")]
    whole = []
    for line in commands:
        start = time.monotonic()
        subprocess.run(line, cwd=run_of_gpt, env=environment(), capture_output=True, check=True)
        seconds = time.monotonic() - start
        whole.append(digest(run_of_gpt / "out"))
    assert whole[0] != whole[1]
    for number in range(6):
        process = subprocess.Popen(
            commands[number % 2],
            cwd=run_of_gpt,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(seconds * (0.4 + 0.1 * number))
        process.kill()
        process.wait()
        assert digest(run_of_gpt / "out") in whole


#: Interrupts itself when it opens a file of what it writes for the n-th time.
INTERRUPTED = """
import os, signal, sys
opened = []
def hook(event, arguments):
    if event == "open" and "/.out." in str(arguments[0]):
        opened.append(event)
        if len(opened) == {count}:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
"""


@pytest.mark.parametrize("count", [1, 2, 3])
def test_interrupted_nothing_is_left(count: int, run_of_gpt: Path) -> None:
    arguments = ["export", "--checkpoint", "run", "-o", "out"]
    done = run_alone(run_of_gpt, *arguments, before=INTERRUPTED.format(count=count))
    assert (done.returncode, done.stdout) == (130, "export: run/step-00000000\n")
    assert done.stderr.endswith("sexpgpu: stopped by SIGINT\n")
    assert sorted(p.name for p in run_of_gpt.iterdir()) == ["gpt.sx", "run"]


@pytest.mark.skipif(sys.platform == "win32", reason="limits are Unix's")
def test_a_file_that_cannot_grow(run_of_gpt: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); "
    arguments = ["export", "--checkpoint", "run", "-o", "out"]
    done = run_alone(run_of_gpt, *arguments, before=limit)
    assert done.returncode == 1
    assert "error[E-FILE-001]: out cannot be written" in done.stderr
    assert "File too large" in done.stderr
    assert sorted(p.name for p in run_of_gpt.iterdir()) == ["gpt.sx", "run"]
