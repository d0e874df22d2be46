"""What the machine can run, and why not the rest."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from click.testing import CliRunner

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import doctor
from sexpgpu.tools.cli.doctor import command

NO_DRIVER = SexpgpuError("E-DEVICE-001", "there is no driver", help="install it")


def diagnose(
    monkeypatch: pytest.MonkeyPatch, obstacle: SexpgpuError | None, **versions: Any
) -> str:
    monkeypatch.setattr(doctor, "why_no_cuda", lambda: obstacle)
    monkeypatch.setattr(doctor, "device_count", lambda: 0 if obstacle else 2)
    known = {"numpy": "2.0.0", **versions}
    monkeypatch.setattr(doctor, "_version", known.get)
    return "\n".join(doctor.describe(doctor.diagnose()))


def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    text = diagnose(monkeypatch, NO_DRIVER)
    assert "cpu      runs" in text
    assert "cuda     does not run: there is no driver\n         install it" in text
    assert "numpy 2.0.0" in text
    assert "onnxruntime-gpu missing" in text


def test_a_machine_with_two(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cuda     runs, 2 devices" in diagnose(monkeypatch, None)


def test_both_runtimes_at_once_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = diagnose(monkeypatch, None, **{"onnxruntime": "1.31.0", "onnxruntime-gpu": "1.31.0"})
    assert "overwrite each other" in text


def test_a_runtime_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("illegal instruction")

    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    assert "cpu      does not run" in diagnose(monkeypatch, NO_DRIVER)


def test_a_system_that_does_not_say_which_cores_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert ", 12 cores\n" in diagnose(monkeypatch, NO_DRIVER)


def test_the_command_prints_lines_and_json() -> None:
    lines = CliRunner().invoke(command).output
    assert lines.startswith("python   3.")
    found = json.loads(CliRunner().invoke(command, ["--json"]).output)
    assert found["cpu_runs"] is True
    assert found["packages"]["numpy"]
    assert isinstance(found["cuda_obstacle"], str)
