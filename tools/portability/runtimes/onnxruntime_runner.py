"""ONNX Runtime on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime


def version() -> str:
    return str(onnxruntime.__version__)


def load(path: str, case: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))
