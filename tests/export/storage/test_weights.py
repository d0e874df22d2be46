"""Frozen parameters: read from the file that the run read, if it is still that file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.export.storage.weights import Weights
from sexpgpu.schemas.checkpoint import LoadedParameter, Parameter
from sexpgpu.schemas.errors import SexpgpuError
from support.checkpoints import save, with_frozen

VALUES = np.linspace(-2, 2, 6).astype(ml_dtypes.bfloat16).reshape(2, 3)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    monkeypatch.chdir(tmp_path)
    safetensors.numpy.save_file({"embed": VALUES}, "base.safetensors")
    digest = hashlib.sha256(Path("base.safetensors").read_bytes()).hexdigest()
    load = LoadedParameter("base.w", "base.safetensors", "embed", digest, True)
    save("run", **with_frozen(load, Parameter("base.w", [2, 3], "bf16")))
    return open_checkpoint("run").weights(trained=False)


def refusal(weights: Weights) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        weights.array("base.w")
    return caught.value


def test_a_frozen_parameter_is_read_from_its_file(weights: Weights) -> None:
    read = weights.array("base.w")
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, VALUES.astype(np.float32))
    assert "base.w" in weights.keys()  # noqa: SIM118
    with pytest.raises(KeyError):
        weights.array("none")


def test_a_file_that_changed_is_refused(weights: Weights) -> None:
    content = bytearray(Path("base.safetensors").read_bytes())
    content[-1] ^= 1
    Path("base.safetensors").write_bytes(content)
    os.utime("base.safetensors", ns=(1, 1))
    error = refusal(weights)
    assert error.code == "E-LOAD-001"
    assert "has changed" in error.message


def test_a_relative_path_starts_at_the_current_directory(
    weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    error = refusal(weights)
    assert error.code == "E-LOAD-001"
    assert "is missing" in error.message
