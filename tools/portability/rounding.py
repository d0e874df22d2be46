"""How far rounding alone may move the outputs of a case: asked for what differs by more."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from sexpgpu.export.graph.document import read_model
from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.difference import EXPLAINED
from sexpgpu.export.onnx.perturbation import Perturbation
from sexpgpu.schemas.exported import MODEL, WEIGHTS
from sexpgpu.schemas.tensor_file import MappedTensors
from sexpgpu.tools.portability.cases import Case
from sexpgpu.tools.portability.runtimes.exchange import read_tensors

#: Evaluations with errors of rounding.
_PERTURBATIONS = 4


def allowed(case: Case, batch: int) -> dict[str, float]:
    """For each output a share of its largest magnitude; as an export's own verification has it."""
    return _allowed(case.folder, batch, case.key)


@functools.lru_cache
def _allowed(folder: Path, batch: int, key: str) -> dict[str, float]:
    graph = read_model((folder / MODEL).read_bytes(), MODEL).graph
    given = read_tensors(folder / f"inputs-{batch}.safetensors")
    inputs = {v.name: given[v.name].view(v.type.dtype.numpy) for v in graph.inputs}
    want = read_tensors(folder / f"outputs-{batch}.safetensors")
    moved = dict.fromkeys(graph.outputs, 0.0)
    with MappedTensors(folder / WEIGHTS) as tensors:

        def read(name: str) -> Array:
            stored: Array = np.asarray(tensors.tensor(name))
            return stored.astype(graph.weights[name].type.dtype.numpy, copy=False)

        for seed in range(_PERTURBATIONS):
            evaluation = Perturbation(graph, inputs, read, batch, seed=seed)
            while evaluation.step():
                pass
            for name, array in evaluation.outputs().items():
                moved[name] = max(moved[name], _share(array, want[name]))
    return {name: EXPLAINED * share for name, share in moved.items()}


def _share(array: Array, want: Array) -> float:
    """How far the finite numbers of floats are apart, as a share of the largest; else 0."""
    if want.dtype.kind != "f":
        return 0.0
    both = np.isfinite(array) & np.isfinite(want)
    a, b = array[both].astype(np.float64), want[both].astype(np.float64)
    largest = max(np.max(np.abs(b), initial=0.0), float(np.finfo(np.float32).tiny))
    return float(np.max(np.abs(a - b), initial=0.0) / largest)
