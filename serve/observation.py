"""What an ONNX file does not say of its outputs, seen by running it: their sizes and batch axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve.protocol import TensorSpec


@dataclass(frozen=True, slots=True)
class Value:
    """An input or output: its dimensions are sizes or names; `axis` is the batch's, if any."""

    name: str
    dtype: DType
    dimensions: tuple[int | str, ...]
    axis: int | None

    @property
    def record(self) -> tuple[int, ...]:
        """The shape for a batch of one."""
        return tuple(1 if i == self.axis else int(d) for i, d in enumerate(self.dimensions))

    def spec(self) -> TensorSpec:
        """One record of it, as callers see it."""
        return TensorSpec(self.name, self.record, self.dtype)


def observe_outputs(
    model: bytes | Path, folder: Path, inputs: Sequence[Value], outputs: Sequence[Value]
) -> list[Value]:
    """The outputs with their sizes for one record, and the axis that grows with the records.

    Raises E-SERVE-004 where the file does not run on zeros.
    """
    one = _shapes(model, folder, inputs, outputs, 1)
    batched = any(value.axis is not None for value in inputs)
    two = _shapes(model, folder, inputs, outputs, 2) if batched else one
    if one is None:
        raise SexpgpuError(
            "E-SERVE-004",
            "the shapes of the outputs are not known, and the file does not run on zeros",
            help="serve a file whose output shapes are fixed",
        )
    found = []
    for value, alone, both in zip(outputs, one, two or one, strict=True):
        grown = [i for i, (a, b) in enumerate(zip(alone, both, strict=False)) if b == 2 * a]
        axis = grown[0] if len(grown) == 1 and len(alone) == len(both) else None
        found.append(replace(value, dimensions=alone, axis=axis if alone != both else None))
    return found


def _shapes(
    model: bytes | Path,
    folder: Path,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    records: int,
) -> list[tuple[int, ...]] | None:
    """The outputs' shapes for so many records; None where the run fails."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(folder)
    )
    feeds: dict[str, Array] = {}
    for value in inputs:
        shape = [records if i == value.axis else d for i, d in enumerate(value.record)]
        feeds[value.name] = np.zeros(shape, value.dtype.numpy)
    try:
        session = ort.InferenceSession(
            str(model) if isinstance(model, Path) else model,
            options,
            providers=["CPUExecutionProvider"],
        )
        results = session.run([value.name for value in outputs], feeds)
    except Exception:
        return None
    return [tuple(result.shape) for result in results]
