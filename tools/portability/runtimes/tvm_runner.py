"""TVM (Relax) on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


def version() -> str:
    return str(tvm.__version__)


def load(path: str, case: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    module = from_onnx(onnx.load(path))
    executable = tvm.compile(module, "llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    inputs = [each["name"] for each in case["inputs"]]
    outputs = [each["name"] for each in case["outputs"]]

    def run(arrays: dict[str, Any]) -> dict[str, Any]:
        result = machine["main"](*(tvm.runtime.tensor(arrays[name]) for name in inputs))
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return dict(zip(outputs, (each.numpy() for each in results), strict=True))

    return run
