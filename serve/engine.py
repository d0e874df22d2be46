"""Running batches: fixed buffers, bound once, whose rows are the records of calls.

Records are written into the rows of the input buffers where they lie, and answers are sent from
the rows of the output buffers; a run allocates nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.serve.hosted import Hosted
from sexpgpu.serve.protocol import TensorSpec

_BF16 = 16  # onnx.TensorProto.BFLOAT16
#: Buffers begin at a multiple of the widest vector: kernels treat what lies before it otherwise.
_ALIGNMENT = 64

#: Whether there is a NaN; and what makes all NaN one.
_Clean = tuple[Callable[[], bool], Callable[[], None]]


class Rows:
    """A buffer of `count` records of a tensor, one after another.

    `layout` is the shape of one record in the graph, whose first axis runs along the records.
    """

    def __init__(self, spec: TensorSpec, layout: tuple[int, ...], count: int) -> None:
        self.spec = spec
        self.layout = layout
        # One element more, so that an empty tensor has an address as well.
        self.memory = _aligned(max(1, spec.nbytes * count))
        self._view = memoryview(self.memory.data)
        self._words: dict[int, Array] = {}

    def row(self, index: int) -> memoryview:
        """The bytes of record number `index`."""
        size = self.spec.nbytes
        return self._view[index * size : (index + 1) * size]

    def records(self, count: int) -> Array:
        """The first records, [count, elements of one]."""
        flat = self.memory[: self.spec.nbytes * count].view(self.spec.dtype.numpy)
        return flat.reshape(count, -1) if count else flat.reshape(0, 0)

    def words(self, count: int) -> Array:
        """The elements of the first records as unsigned numbers of their width, in one row."""
        found = self._words.get(count)
        if found is None:
            size, width = self.spec.nbytes, self.spec.dtype.itemsize
            found = self._words[count] = self.memory[: size * count].view(f"u{width}")
        return found


class Buffers:
    """Input and output buffers for up to `limit` records, and a binding for each batch size."""

    def __init__(
        self,
        session: ort.InferenceSession,
        hosted: Hosted,
        limit: int,
        pin: Callable[[Array], None] | None = None,
    ) -> None:
        self._session = session
        layouts = hosted.layouts
        self.inputs = [Rows(s, layouts.get(s.name, s.shape), limit) for s in hosted.inputs]
        self.outputs = [Rows(s, layouts.get(s.name, s.shape), limit) for s in hosted.outputs]
        self._bound: dict[int, tuple[Any, list[_Clean]]] = {}
        if pin is not None:
            for rows in (*self.inputs, *self.outputs):
                pin(rows.memory)

    def bound(self, size: int) -> tuple[Any, list[_Clean]]:
        """The binding that runs the first `size` records, and what cleans their answers."""
        found = self._bound.get(size)
        if found is None:
            found = self._bound[size] = self._bind(size), self._cleaners(size)
        return found

    def _bind(self, size: int) -> Any:
        binding = self._session.io_binding()
        for bind, tensors in (
            (binding.bind_input, self.inputs),
            (binding.bind_output, self.outputs),
        ):
            for rows in tensors:
                spec = rows.spec
                bind(spec.name, "cpu", 0, element(spec), shape(rows.layout, size), pointer(rows))
        return binding

    def _cleaners(self, size: int) -> list[_Clean]:
        return [
            _cleaner(rows.records(size).reshape(-1), rows.spec.dtype)
            for rows in self.outputs
            if rows.spec.dtype.is_float and rows.spec.nbytes
        ]


class Engine:
    """A loaded model that runs batches of up to `limit` records.

    `pin` makes the memory of a buffer one that the device copies from and to by itself.  `clock` is
    what a run is timed with: where it runs in the calling thread, that thread's own time, which
    others that keep the machine busy do not add to.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        hosted: Hosted,
        limit: int,
        pin: Callable[[Array], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.session = session
        self.clock = clock
        # It holds the weights' memory, which the session reads.
        self.hosted = hosted
        self.limit = limit
        self._pin = pin
        self.buffers = Buffers(session, hosted, limit, pin)
        self._run = session.run_with_iobinding

    def run(self, size: int, buffers: Buffers | None = None) -> None:
        """Runs the first `size` records of the buffers.  Raises RunFailed.

        Every NaN of an answer is one and the same: which of two a sum hands on depends on the
        order of its terms.
        """
        binding, cleaners = (buffers or self.buffers).bound(size)
        try:
            self._run(binding)
        except Exception as error:
            raise RunFailed(reason(error)) from None
        for has_nan, clean in cleaners:
            if has_nan():
                clean()

    def new_buffers(self, limit: int | None = None) -> Buffers:
        """Another set of buffers, for when answers of the first are still being sent."""
        return Buffers(self.session, self.hosted, limit or self.limit, self._pin)


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


def _aligned(size: int) -> Array:
    """Zeros, a multiple of a vector's bytes from address 0."""
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]


def _cleaner(values: Array, dtype: DType) -> _Clean:
    """Looks for NaN at the cost of reading the values once."""
    return _clean_bf16(values.view(np.uint16)) if dtype is DType.BF16 else _clean_floats(values)


def _clean_floats(values: Array) -> _Clean:
    argmax, item = values.argmax, values.item

    def has_nan() -> bool:
        # The first NaN counts as the largest, and NaN is not equal to itself.
        value = item(argmax())
        return bool(value != value)

    def clean() -> None:
        values[np.isnan(values)] = np.nan

    return has_nan, clean


def _clean_bf16(words: Array) -> _Clean:
    def has_nan() -> bool:
        return bool((words & 0x7FFF).max() > 0x7F80)

    def clean() -> None:
        words[(words & 0x7FFF) > 0x7F80] = 0x7FC0

    return has_nan, clean
