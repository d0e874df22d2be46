"""`sexpgpu serve`: its lines, its flags, and its errors."""

from __future__ import annotations

import json
import signal
import struct
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.tools.cli import main
from support.exports import checkpoint
from support.programs import GPT
from support.serving import serve_process, start, write_onnx

NEGATIVE = ("float[N,3] x", "float[N,3] y", "y = Neg (x)")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_onnx(tmp_path / "m.onnx", *NEGATIVE)


def test_the_lines_say_what_is_served(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with serve_process(model, path, "--device=cpu", "--batch=4") as server:
        assert server.lines[:4] == [
            f"serving {model} on {path}, up to 4 a call",
            "  inputs  x [1, 3] f32",
            "  outputs y [1, 3] f32",
            "  batch   sizes 1 to 4, each with the bits of a call alone",
        ]
        assert server.lines[4:] == ["  device  cpu"]
        # The line is printed only when a call would be answered.
        with server.connect() as wire:
            assert wire.about["batch"] == {"limit": 4, "sizes": [1, 2, 3, 4], "padded": False}
            assert wire.call(bytes(12)) == b"\0" + struct.pack("<3f", -0.0, -0.0, -0.0)
        status, errors = server.stop(signal.SIGTERM)
    assert status == 128 + signal.SIGTERM
    assert errors == "sexpgpu serve: stopped by SIGTERM, 1 call in 1 run\n"
    assert not path.exists()


def test_a_model_that_runs_one_at_a_time_says_why(tmp_path: Path) -> None:
    mixed = """
(def record (fields :x (list f32 4)))
(defmodel net () (parts a (linear 4 2)) (apply (x) (softmax (a x) :axis 0)))
(def model (net))
"""
    location = checkpoint(mixed, tmp_path)
    with serve_process(location, tmp_path / "s", "--trained", "--device=cpu") as server:
        assert "up to 1 a call" in server.lines[0]
        [line] = [line for line in server.lines if line.startswith("  batch")]
        assert line.startswith("  batch   one call at a time: `output`: `softmax` at ")
        assert "program.sx:3:" in line


def test_flags_shape_what_clients_see(tmp_path: Path) -> None:
    location = checkpoint(GPT, tmp_path)
    flags = ["--trained", "--at", "--precision=bf16", "--device=cpu"]
    with serve_process(location, tmp_path / "s", *flags) as server, server.connect() as wire:
        about = wire.about
        assert about["precision"] == "bf16"
        assert about["step"] == 0
        window, at = about["inputs"]
        assert at == {"name": "at", "shape": [1], "dtype": "i32"}
        [made] = about["outputs"]
        assert made["shape"][1] == 1
        call = np.zeros(window["shape"], np.int32).tobytes()
        answer = wire.call(call + struct.pack("<i", 0))
        assert len(answer) == 1 + 4 * int(np.prod(made["shape"]))
        refused = wire.call(call + struct.pack("<i", window["shape"][1]))
        assert refused[:1] == b"\1"
        assert b"`at`" in refused


def test_auto_says_what_it_took(model: Path, tmp_path: Path) -> None:
    with serve_process(model, tmp_path / "s") as server:
        line = server.lines[-1]
        assert line.startswith(("  device  cuda:0", "  device  cpu ("))


def test_log_json_has_a_line_for_every_event(model: Path, tmp_path: Path) -> None:
    with serve_process(model, tmp_path / "s", "--device=cpu", "--log-json") as server:
        with server.connect() as wire:
            assert wire.call(b"too short")[:1] == b"\1"
        _, errors = server.stop(signal.SIGINT)
    events = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    assert [e for e in events if e["event"] == "error"]
    assert all(isinstance(e["time"], float) for e in events)


@pytest.mark.parametrize(
    ("flags", "code", "word"),
    [
        (["--dim", "length"], "E-USAGE-001", "fixes no dimension"),
        (["--dim", "length=0"], "E-USAGE-001", "fixes no dimension"),
        (["--mode", "999"], "E-USAGE-001", "no file mode"),
        (["--device", "tpu"], "E-USAGE-001", "no device"),
        (["--dim", "length=4"], "E-SERVE-004", "no free dimension `length`"),
        (["--output", "z"], "E-EXPORT-002", "no output `z`"),
    ],
)
def test_flags_that_cannot_be(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    code: str,
    word: str,
) -> None:
    process = start("serve", str(model), "--socket", str(tmp_path / "s"), "--device=cpu", *flags)
    out, errors = process.communicate(timeout=60)
    assert out == ""
    assert f"error[{code}]" in errors
    assert word in errors
    assert "Traceback" not in errors
    assert process.returncode == (2 if code == "E-USAGE-001" else 1)
    assert not (tmp_path / "s").exists()


def test_what_cannot_be_served(tmp_path: Path) -> None:
    for operand in (tmp_path / "nothing", tmp_path):
        process = start("serve", str(operand), "--socket", str(tmp_path / "s"), "--device=cpu")
        out, errors = process.communicate(timeout=60)
        assert out == ""
        assert errors.startswith("error[E-")
        assert process.returncode == 1


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    for flag in "socket device batch output at precision trained threads mode dim log-json".split():
        assert f"--{flag}" in shown
