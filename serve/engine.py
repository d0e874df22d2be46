"""Running batches: fixed buffers, bound once, whose rows are the records of calls.

Records are written into the rows of the input buffers where they lie, and answers are sent from
the rows of the output buffers; a run allocates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.serve.hosted import Hosted
from sexpgpu.serve.protocol import TensorSpec

_BF16 = 16  # onnx.TensorProto.BFLOAT16


class Rows:
    """A buffer of `count` records of a tensor, one after another.

    `layout` is the shape of one record in the graph, whose first axis runs along the records.
    """

    def __init__(self, spec: TensorSpec, layout: tuple[int, ...], count: int) -> None:
        self.spec = spec
        self.layout = layout
        # One element more, so that an empty tensor has an address as well.
        self.memory = np.zeros(max(1, spec.nbytes * count), np.uint8)
        self._view = memoryview(self.memory.data)

    def row(self, index: int) -> memoryview:
        """The bytes of record number `index`."""
        size = self.spec.nbytes
        return self._view[index * size : (index + 1) * size]

    def records(self, count: int) -> Array:
        """The first records, [count, elements of one]."""
        flat = self.memory[: self.spec.nbytes * count].view(self.spec.dtype.numpy)
        return flat.reshape(count, -1) if count else flat.reshape(0, 0)


class Buffers:
    """Input and output buffers for up to `limit` records, and a binding for each batch size."""

    def __init__(self, session: ort.InferenceSession, hosted: Hosted, limit: int) -> None:
        self._session = session
        layouts = hosted.layouts
        self.inputs = [Rows(s, layouts.get(s.name, s.shape), limit) for s in hosted.inputs]
        self.outputs = [Rows(s, layouts.get(s.name, s.shape), limit) for s in hosted.outputs]
        self._bindings: dict[int, Any] = {}

    def binding(self, size: int) -> Any:
        """The binding that runs the first `size` records."""
        if size not in self._bindings:
            binding = self._session.io_binding()
            for rows in self.inputs:
                binding.bind_input(
                    rows.spec.name,
                    "cpu",
                    0,
                    element(rows.spec),
                    shape(rows.layout, size),
                    pointer(rows),
                )
            for rows in self.outputs:
                binding.bind_output(
                    rows.spec.name,
                    "cpu",
                    0,
                    element(rows.spec),
                    shape(rows.layout, size),
                    pointer(rows),
                )
            self._bindings[size] = binding
        return self._bindings[size]


class Engine:
    """A loaded model that runs batches of up to `limit` records."""

    def __init__(self, session: ort.InferenceSession, hosted: Hosted, limit: int) -> None:
        self.session = session
        self.hosted = hosted
        self.limit = limit
        self.buffers = Buffers(session, hosted, limit)
        self._run = session.run_with_iobinding

    def run(self, size: int, buffers: Buffers | None = None) -> None:
        """Runs the first `size` records of the buffers.  Raises RunFailed."""
        try:
            self._run((buffers or self.buffers).binding(size))
        except Exception as error:
            raise RunFailed(reason(error)) from None

    def new_buffers(self, limit: int | None = None) -> Buffers:
        """Another set of buffers, for when answers of the first are still being sent."""
        return Buffers(self.session, self.hosted, limit or self.limit)


class RunFailed(Exception):
    """A run that ONNX Runtime could not finish, with its reason."""


def reason(error: Exception) -> str:
    """ONNX Runtime's message, without its file names and the prefix of its codes."""
    text = str(error).strip().split("\n")[0]
    return text.rpartition(" : ")[2] or text


def element(spec: TensorSpec) -> Any:
    """The dtype as a binding takes it."""
    return _BF16 if spec.dtype is DType.BF16 else spec.dtype.numpy.type


def shape(layout: tuple[int, ...], size: int) -> Sequence[int]:
    """The tensor's shape for so many records."""
    return (layout[0] * size, *layout[1:]) if layout else ()


def pointer(rows: Rows) -> int:
    """Where the buffer begins."""
    return int(rows.memory.ctypes.data)
