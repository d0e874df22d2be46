"""tract (Sonos)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tract


def version() -> str:
    return str(tract.version())


def load(path: str, case: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    model = tract.onnx().load(path).into_model().into_runnable()
    inputs = [each["name"] for each in case["inputs"]]
    outputs = [each["name"] for each in case["outputs"]]

    def run(arrays: dict[str, Any]) -> dict[str, Any]:
        results = model.run([arrays[name] for name in inputs])
        return dict(zip(outputs, (result.to_numpy() for result in results), strict=True))

    return run
