"""onnx's reference evaluator: each operator in NumPy, as the standard words it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
from onnx.reference import ReferenceEvaluator


def version() -> str:
    return str(onnx.__version__)


def load(path: str, case: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    session = ReferenceEvaluator(path)
    names = session.output_names
    return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))
