"""An export takes no more memory than it may, of a model over 2 GiB, which it writes whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.inspection import inspect
from sexpgpu.export.onnx.session import Session
from sexpgpu.tools.bench.export_memory import ALLOWANCE, peak_of_export, write_program

WIDTH, LAYERS = 4096, 33
WEIGHT = 4 * WIDTH * WIDTH


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """A program whose weights have a length of 2.06 GiB, in a file without blocks."""
    if shutil.disk_usage(tmp_path).free < 4 * 2**30:
        pytest.skip("there is no room for an export of 2 GiB")
    yield write_program(tmp_path, LAYERS, WIDTH)
    shutil.rmtree(tmp_path)


def test_a_model_over_two_gibibytes(large: Path) -> None:
    peak = peak_of_export(large, "--no-verify")
    assert peak < ALLOWANCE + WEIGHT
    found = inspect(str(large.parent / "export"))
    assert found.files["params.safetensors"] > 2**31
    assert found.files["model.onnx"] < 2**16
    assert len(found.weights) == LAYERS
    session = Session(large.parent / "export" / "model.onnx", mapped=True)
    x = np.ones((1, WIDTH), np.float32)
    np.testing.assert_array_equal(session.run({"inputs": x})["output"], np.zeros_like(x))


def test_a_weight_that_is_converted_stands_by_pieces_alone(tmp_path: Path) -> None:
    # One weight of 256 MiB, half of which would stand beside it if it were converted as a whole.
    peak = peak_of_export(write_program(tmp_path, 1, 8192), "--no-verify", "--weights", "bf16")
    assert peak < ALLOWANCE + 4 * 8192 * 8192
    whole = peak_of_export(tmp_path / "model.sx", "--no-verify")
    assert peak < whole + 80e6
