"""What an ONNX file does not say of its outputs, seen by running it: their sizes and batch axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        return tuple(
            1 if i == self.axis and isinstance(d, str) else int(d)
            for i, d in enumerate(self.dimensions)
        )

    def spec(self) -> TensorSpec:
        """One record of it, as callers see it."""
        return TensorSpec(self.name, self.record, self.dtype)


def observe_outputs(
    model: bytes | Path, folder: str, inputs: Sequence[Value], outputs: Sequence[Value]
) -> list[Value]:
    """The outputs with their sizes for one record, and the axis that grows with the records.

    `folder` is where the files of weights are, where the model comes as bytes.
    Raises E-SERVE-004 where the file does not run on zeros, or a shape depends on values.
    """
    run = _Runner(model, folder, inputs, outputs)
    one = run.shapes(1, np.zeros)
    batched = any(value.axis is not None for value in inputs)
    two = run.shapes(2, np.zeros) if batched else one
    if one is None:
        raise SexpgpuError(
            "E-SERVE-004",
            "the shapes of the outputs are not known, and the file does not run on zeros",
            help="say them: " + " ".join(f"--dim {name}=N" for name in _unknown(outputs)),
        )
    other = run.shapes(1, np.ones)
    for value, alone, changed in zip(outputs, one, other or one, strict=True):
        if alone != changed:
            raise SexpgpuError(
                "E-SERVE-004",
                f"the shape of `{value.name}` depends on the values of the inputs",
                came=f"{list(alone)} and {list(changed)}",
                help="leave it out by naming other outputs with --output",
            )
    found = []
    for value, alone, both in zip(outputs, one, two or one, strict=True):
        found.append(replace(value, dimensions=alone, axis=_growing(alone, both)))
    return found


def _growing(alone: tuple[int, ...], both: tuple[int, ...]) -> int | None:
    """The axis along which records lie, whose parts are whole records.

    Not first, it must have one position for each: others would lie between those of other records.
    """
    if len(alone) != len(both):
        return None
    grown = [axis for axis, (a, b) in enumerate(zip(alone, both, strict=True)) if a != b]
    if len(grown) != 1 or both[grown[0]] != 2 * alone[grown[0]]:
        return None
    return grown[0] if grown[0] == 0 or alone[grown[0]] == 1 else None


def _unknown(values: Sequence[Value]) -> list[str]:
    """The dimensions that are names; a first one that was taken for the batch may be none."""
    names = []
    for value in values:
        unknown = [
            dimension
            for axis, dimension in enumerate(value.dimensions)
            if isinstance(dimension, str) and axis != value.axis
        ]
        if unknown and value.axis == 0:
            names.append(f"{value.name}.0")
        names += unknown
    return list(dict.fromkeys(names))


class _Runner:
    """Runs the file as it stands, without optimising it; nothing where it cannot be loaded."""

    def __init__(
        self,
        model: bytes | Path,
        folder: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
    ) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        if isinstance(model, bytes):
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", folder
            )
        self._inputs = inputs
        self._names = [value.name for value in outputs]
        try:
            self._session = ort.InferenceSession(
                str(model) if isinstance(model, Path) else model,
                options,
                providers=["CPUExecutionProvider"],
            )
        except Exception:
            self._session = None

    def shapes(self, records: int, fill: Callable[..., Array]) -> list[tuple[int, ...]] | None:
        """The outputs' shapes for so many records of one value; None where the run fails."""
        feeds: dict[str, Array] = {}
        for value in self._inputs:
            shape = [records if i == value.axis else d for i, d in enumerate(value.record)]
            feeds[value.name] = fill(shape, value.dtype.numpy)
        try:
            results = self._session.run(self._names, feeds)
        except Exception:
            return None
        return [tuple(result.shape) for result in results]
