"""OpenVINO on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openvino


def version() -> str:
    return str(openvino.__version__)


def load(path: str, case: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    # The CPU may choose bf16 by itself where it has that.
    model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = [output["name"] for output in case["outputs"]]

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        results = model(inputs)
        return {name: results[name] for name in names}

    return run
