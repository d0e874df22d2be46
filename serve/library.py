"""A model inside the caller's own process: no socket, the same batches and the same bits.

Threads that call while the model is busy are run together when it is free: whoever gets the model
next runs all that wait, up to the batch limit, first come, first served.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.model import Precision
from sexpgpu.serve.arrays import bind_arguments, count_records, fit
from sexpgpu.serve.checks import CallChecks
from sexpgpu.serve.engine import Buffers, RunFailed
from sexpgpu.serve.host import DEFAULT_BATCH, Loaded, load_operand
from sexpgpu.serve.hosted import Shaping
from sexpgpu.serve.protocol import TensorSpec


def load(
    operand: str,
    *,
    device: str = "auto",
    output: str | Sequence[str] = (),
    at: bool = False,
    precision: Precision | None = None,
    trained: bool = False,
    batch: int = DEFAULT_BATCH,
    threads: int = 1,
    dimensions: Mapping[str, int] | None = None,
) -> Model:
    """Loads a checkpoint, a location, a directory that export wrote, or an ONNX file.

    The arguments are the flags of `sexpgpu serve`: `batch` is how many records may run together,
    `threads` what one run uses.  Raises SexpgpuError as `serve` does.
    """
    outputs = (output,) if isinstance(output, str) else tuple(output)
    shaping = Shaping(outputs, at, precision, trained, dict(dimensions or {}))
    return Model(load_operand(operand, shaping, device=device, batch=batch, threads=threads))


class _Record:
    """One record of a call: its inputs, where its outputs go, and how it went."""

    __slots__ = ("done", "error", "inputs", "outputs")

    def __init__(self, inputs: list[Array], outputs: list[Array]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.done = False
        self.error: str | None = None


class Model:
    """A loaded model, called with arrays from any thread."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._checks = CallChecks(loaded.hosted)
        self._queue: deque[_Record] = deque()
        self._running = threading.Lock()
        self.calls = 0
        self.runs = 0

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What a record's inputs are."""
        return self._loaded.hosted.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What a record's outputs are."""
        return self._loaded.hosted.outputs

    @property
    def about(self) -> dict[str, Any]:
        """What a server's greeting would say."""
        from sexpgpu.serve.host import describe

        return describe(self._loaded)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """The outputs for one record or for many.

        Arrays have the shapes of `inputs`, or any number of records along the first axis, or one
        record without it.  One output comes as an array, several as a dict by name.  Raises
        E-CALL-010 where the arrays are not what the model takes.
        """
        given = bind_arguments(self.inputs, arrays, named)
        fitted = [fit(spec, value) for spec, value in zip(self.inputs, given, strict=True)]
        count = count_records(self.inputs, fitted)
        results = [
            np.empty(
                (spec.shape[0] * count, *spec.shape[1:]) if spec.shape else (), spec.dtype.numpy
            )
            for spec in self.outputs
        ]
        records = [
            _Record(
                [_part(array, spec, i) for array, spec in zip(fitted, self.inputs, strict=True)],
                [_part(array, spec, i) for array, spec in zip(results, self.outputs, strict=True)],
            )
            for i in range(count)
        ]
        self._queue.extend(records)
        for record in records:
            while not record.done:
                with self._running:
                    if not record.done:
                        self._run()
        self.calls += 1
        wrong = next((record.error for record in records if record.error is not None), None)
        if wrong is not None:
            raise SexpgpuError("E-CALL-010", "the model refuses the call", came=wrong)
        if len(results) == 1:
            return results[0]
        return {spec.name: array for spec, array in zip(self.outputs, results, strict=True)}

    def _run(self) -> None:
        """Runs what waits, up to the limit; the caller holds the model."""
        limit = self._loaded.plan.limit
        batch = [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]
        try:
            self._run_batch(batch)
        finally:
            for record in batch:
                record.done = True

    def _run_batch(self, batch: list[_Record]) -> None:
        engine, buffers = self._loaded.engine, self._loaded.engine.buffers
        _write(buffers, batch)
        bad = self._checks.bad_calls(buffers, len(batch))
        for row, message in bad.items():
            batch[row].error = message
        good = [record for row, record in enumerate(batch) if row not in bad]
        if bad:
            _write(buffers, good)
        if not good:
            return
        try:
            engine.run(self._loaded.plan.size_for[len(good)])
            self.runs += 1
            _read(buffers, good)
        except RunFailed:
            for record in good:
                _write(buffers, [record])
                try:
                    engine.run(self._loaded.plan.size_for[1])
                    self.runs += 1
                    _read(buffers, [record])
                except RunFailed as error:
                    record.error = str(error)


def _part(array: Array, spec: TensorSpec, index: int) -> Array:
    """Record number `index` of an array, a view."""
    if not spec.shape:
        return array
    size = spec.shape[0]
    return array[index * size : (index + 1) * size]


def _write(buffers: Buffers, batch: list[_Record]) -> None:
    for position, rows in enumerate(buffers.inputs):
        records = rows.records(len(batch))
        for row, record in enumerate(batch):
            records[row] = record.inputs[position].reshape(-1)


def _read(buffers: Buffers, batch: list[_Record]) -> None:
    for position, rows in enumerate(buffers.outputs):
        records = rows.records(len(batch))
        for row, record in enumerate(batch):
            target = record.outputs[position]
            target[...] = records[row].reshape(target.shape)
