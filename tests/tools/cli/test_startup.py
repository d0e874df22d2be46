"""The command answers at once: nothing heavy is imported before a subcommand needs it."""

from __future__ import annotations

import os
import subprocess
import sys

HEAVY = (
    "fsspec",
    "jax",
    "matplotlib",
    "ml_dtypes",
    "numpy",
    "onnx",
    "onnxruntime",
    "optax",
    "rich",
    "safetensors",
)


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_command_imports_nothing_heavy() -> None:
    code = "import sys, sexpgpu.tools.cli; print(*{name.split('.')[0] for name in sys.modules})"
    imported = set(_python(code).split())
    assert "click" in imported
    assert imported.isdisjoint(HEAVY)


def test_help_takes_under_0_3_seconds_of_cpu() -> None:
    times = []
    for _ in range(3):
        before = os.times()
        shown = _python("from sexpgpu.tools.cli import main; main(['--help'])")
        after = os.times()
        assert "export" in shown
        times.append(after.children_user + after.children_system)
        times[-1] -= before.children_user + before.children_system
    assert min(times) < 0.3


def test_the_package_runs_as_a_module() -> None:
    run = [sys.executable, "-m", "sexpgpu.tools.cli", "explain", "E-SHAPE-001"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("E-SHAPE-001: ")
