"""IREE: compiled for this machine's CPU, and run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import iree.compiler as compiler
import iree.compiler.version
import iree.runtime as runtime


def version() -> str:
    return str(iree.compiler.version.VERSION)


def load(path: str, case: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        imported = Path(folder) / "model.mlir"
        words = [str(Path(sys.executable).parent / "iree-import-onnx"), path, "-o", str(imported)]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise RuntimeError(done.stdout[-4000:])
        compiled = compiler.compile_file(
            str(imported),
            input_type="onnx",
            target_backends=["llvm-cpu"],
            extra_args=["--iree-llvmcpu-target-cpu=host"],
        )
    module = runtime.load_vm_flatbuffer(compiled, driver="local-task")
    # Beside each function stands one that waits for a fence.
    names = module.vm_module.function_names
    name = next(n for n in names if not n.startswith("__") and not n.endswith("$async"))
    inputs = [each["name"] for each in case["inputs"]]
    outputs = [each["name"] for each in case["outputs"]]
    call = getattr(module, name)

    def run(arrays: dict[str, Any]) -> dict[str, Any]:
        result = call(*(arrays[name] for name in inputs))
        results = list(result) if isinstance(result, list | tuple) else [result]
        return dict(zip(outputs, (each.to_host() for each in results), strict=True))

    return run
