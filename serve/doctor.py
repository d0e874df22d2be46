"""What this machine can run models on, and why not on the rest."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sexpgpu.serve.cuda import device_count, why_no_cuda

_PACKAGES = ("sexpgpu", "onnxruntime-gpu", "onnxruntime", "onnx", "numpy", "ml-dtypes", "fsspec")


@dataclass
class Diagnosis:
    """What was found; `cuda_obstacle` is empty where CUDA can be used."""

    python: str
    system: str
    cores: int
    packages: dict[str, str | None]
    providers: list[str]
    cpu_runs: bool
    cuda_obstacle: str
    cuda_help: str
    cuda_devices: int
    notes: list[str] = field(default_factory=list)


def diagnose() -> Diagnosis:
    """Looks at the machine; a model is run on the CPU to see that it can be."""
    import onnxruntime as ort

    obstacle = why_no_cuda()
    packages = {name: _version(name) for name in _PACKAGES}
    notes = []
    if packages["onnxruntime"] and packages["onnxruntime-gpu"]:
        notes.append(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other: "
            "pip uninstall onnxruntime, then pip install --force-reinstall onnxruntime-gpu"
        )
    if os.environ.get("ORT_DISABLE_TELEMETRY") != "1":
        notes.append("ORT_DISABLE_TELEMETRY is not 1 outside sexpgpu: ONNX Runtime reports usage")
    return Diagnosis(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cores=_cores(),
        packages=packages,
        providers=ort.get_available_providers(),
        cpu_runs=_runs_on_cpu(),
        cuda_obstacle="" if obstacle is None else obstacle.message,
        cuda_help="" if obstacle is None else obstacle.help or "",
        cuda_devices=device_count(),
        notes=notes,
    )


def describe(found: Diagnosis) -> list[str]:
    """The diagnosis in lines for a person."""
    lines = [f"python   {found.python} on {found.system}, {found.cores} cores"]
    shown = ", ".join(f"{name} {number or 'missing'}" for name, number in found.packages.items()
                      if number or name != "onnxruntime")  # fmt: skip
    lines.append(f"packages {shown}")
    lines.append(
        "cpu      " + ("runs" if found.cpu_runs else "does not run: reinstall onnxruntime")
    )
    if found.cuda_obstacle:
        lines.append(f"cuda     does not run: {found.cuda_obstacle}")
        if found.cuda_help:
            lines.append(f"         {found.cuda_help}")
    else:
        devices = "device" if found.cuda_devices == 1 else "devices"
        lines.append(f"cuda     runs, {found.cuda_devices} {devices}")
    return [*lines, *(f"note     {note}" for note in found.notes)]


def _cores() -> int:
    """Those that this process may use, where the system says."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _runs_on_cpu() -> bool:
    """Whether ONNX Runtime adds two numbers."""
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "a"], ["b"])],
        "doctor",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [1])],
    )
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        result: Any = session.run(None, {"a": np.ones(1, np.float32)})[0]
    except Exception:
        return False
    return bool(result[0] == 2)
