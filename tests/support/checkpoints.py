"""A small checkpoint with every kind of file, for the tests of storage."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import msgspec
import numpy as np

from sexpgpu.export.storage.checkpoint_writer import TensorSet, save_checkpoint
from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.checkpoint import Checkpoint, LoadedParameter, Parameter, SourceText

PARAMETERS = {
    "tok": np.arange(12, dtype=np.float32).reshape(3, 4),
    "head.w": np.linspace(-1, 1, 8).astype(ml_dtypes.bfloat16),
    "count": np.array(7, np.int64),
    "flags": np.array([True, False]),
}
AVERAGES = {"tok": PARAMETERS["tok"] + 100, "head.w": PARAMETERS["head.w"]}
MODEL = b'{"version": 1}'

DOCUMENT = Checkpoint(
    producer="sexpgpu 0.1.0",
    step=20,
    slug="quiet-heron",
    knobs={"dim": 4},
    sources=[SourceText("tiny.sx", "(def a 1)\n")],
    parameters=[
        Parameter(path, list(array.shape), dtype)
        for (path, array), dtype in zip(
            PARAMETERS.items(), ("f32", "bf16", "i64", "bool"), strict=True
        )
    ],
)


def save(location: Location | str, step: int = 20, **changes: Any) -> Location:
    """Write step `step` with its parameters, averages, optimizer state and model."""
    if isinstance(location, str):
        location = Location.parse(location)
    files: dict[str, Any] = {
        "averages": TensorSet.of(AVERAGES),
        "optimizer": TensorSet.of({"tok.m": PARAMETERS["tok"]}),
        "model": MODEL,
    }
    for name in list(changes):
        if name in files:
            files[name] = changes.pop(name)
    params = changes.pop("params", TensorSet.of(PARAMETERS))
    document = msgspec.structs.replace(DOCUMENT, step=step, **changes)
    return save_checkpoint(location, document, params, **files)


def with_frozen(load: LoadedParameter, parameter: Parameter) -> dict[str, Any]:
    """The changes to DOCUMENT that add a frozen parameter."""
    return {"parameters": [*DOCUMENT.parameters, parameter], "loads": [load]}
