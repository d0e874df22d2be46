"""Examples with real weights: fetched, exported with the options of the command, and run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.subject import from_program
from sexpgpu.tools.fetch_models import fetch_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# Nothing is asked of the network: the models are files of packages.
os.environ["HF_HUB_OFFLINE"] = "1"


def export_example(
    name: str, file: str, directory: Path, *, window: int, **options: Any
) -> Session:
    """ONNX Runtime's session of an example whose weights are the model's file of that name."""
    weights = str(fetch_model(name)[file])
    subject = from_program(EXAMPLES / f"{name}.sx", knobs={"weights": weights, "window": window})
    export_model(subject, directory, ExportOptions(**options))
    return Session(directory / "model.onnx")


def relative_difference(found: Array, expected: Array) -> float:
    """The largest difference, as a share of the largest magnitude."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    return float(np.abs(found - expected).max() / np.abs(expected).max())
