"""A model inside the caller's own process: no socket, the same batches and the same bits.

Threads that call while the model is busy are run together when it is free: whoever gets the model
next runs all that wait, up to the batch limit, first come, first served.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.precision import Precision
from sexpgpu.serve.arrays import bind_arguments, count_records, fit
from sexpgpu.serve.checks import CallChecks
from sexpgpu.serve.engine import Buffers, Engine, RunFailed
from sexpgpu.serve.host import DEFAULT_BATCH, Loaded, describe, load_operand
from sexpgpu.serve.hosted import Shaping
from sexpgpu.serve.protocol import TensorSpec

#: So many records of a call wait at a time.
_TOGETHER = 1024


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
    """A loaded model, called with arrays from any thread.

    `calls` are the records that were answered, `runs` the batches that they took.  It ends with
    `close`, or as a context manager.  A process that was forked from the one that loaded it loads
    its own.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded: Loaded | None = loaded
        self._checks = CallChecks(loaded.hosted)
        self._size_for = loaded.plan.size_for
        self._queue: deque[_Record] = deque()
        self._running = threading.Lock()
        self._process = os.getpid()
        self.inputs: tuple[TensorSpec, ...] = loaded.hosted.inputs
        self.outputs: tuple[TensorSpec, ...] = loaded.hosted.outputs
        self.calls = 0
        self.runs = 0

    @property
    def about(self) -> dict[str, Any]:
        """What a server's greeting would say."""
        return describe(self._use())

    def close(self) -> None:
        """Lets go of the model and its memory, when the run in progress is done."""
        with self._running:
            self._loaded = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """The outputs for one record or for many.

        Arrays have the shapes of `inputs`, or any number of records along the first axis, or one
        record without it.  One output comes as an array, several as a dict by name.  Raises
        E-CALL-010 where the arrays are not what the model takes.
        """
        self._use()
        given = bind_arguments(self.inputs, arrays, named)
        fitted = [fit(spec, value) for spec, value in zip(self.inputs, given, strict=True)]
        count = count_records(self.inputs, fitted)
        results = [
            np.empty(
                (spec.shape[0] * count, *spec.shape[1:]) if spec.shape else (), spec.dtype.numpy
            )
            for spec in self.outputs
        ]
        for start in range(0, count, _TOGETHER):
            self._answer(fitted, results, range(start, min(start + _TOGETHER, count)), count)
        if len(results) == 1:
            return results[0]
        return {spec.name: array for spec, array in zip(self.outputs, results, strict=True)}

    def _answer(
        self, given: Sequence[Array], results: Sequence[Array], numbers: range, count: int
    ) -> None:
        """Has some of a call's records run, and waits for them."""
        records = [
            _Record(
                [_part(array, spec, i) for array, spec in zip(given, self.inputs, strict=True)],
                [_part(array, spec, i) for array, spec in zip(results, self.outputs, strict=True)],
            )
            for i in numbers
        ]
        self._queue.extend(records)
        try:
            for record in records:
                while not record.done:
                    with self._running:
                        if not record.done:
                            self._run()
        except BaseException:
            # Nobody waits for the others any more.
            for record in records:
                record.done = True
            raise
        for number, record in zip(numbers, records, strict=True):
            if record.error is not None:
                which = f"record {number}: " if count > 1 else ""
                raise SexpgpuError(
                    "E-CALL-010", "the model refuses the call", came=which + record.error
                )

    def _use(self) -> Loaded:
        """The loaded model.  Raises E-CALL-010 where it cannot be used here."""
        if os.getpid() != self._process:
            raise SexpgpuError(
                "E-CALL-010",
                "the model was loaded before this process was forked",
                help="load it in each process",
            )
        loaded = self._loaded
        if loaded is None:
            raise SexpgpuError("E-CALL-010", "the model is closed")
        return loaded

    def _run(self) -> None:
        """Runs what waits, up to the limit; the caller holds the model."""
        loaded = self._use()
        batch: list[_Record] = []
        while self._queue and len(batch) < loaded.plan.limit:
            record = self._queue.popleft()
            if not record.done:
                batch.append(record)
        count = loaded.plan.together[len(batch)]
        self._queue.extendleft(reversed(batch[count:]))
        del batch[count:]
        try:
            self._run_batch(loaded.engine, batch)
        except BaseException:
            # An interrupt is of one thread: whoever else waits is run again by another.
            self._queue.extendleft(reversed(batch))
            raise
        for record in batch:
            record.done = True

    def _run_batch(self, engine: Engine, batch: list[_Record]) -> None:
        _write(engine.buffers, batch)
        bad = self._checks.bad_calls(engine.buffers, len(batch))
        for row, message in bad.items():
            batch[row].error = message
        good = [record for row, record in enumerate(batch) if row not in bad]
        if not good:
            return
        try:
            self._run_rows(engine, good, written=not bad)
        except RunFailed:
            for record in good:
                try:
                    self._run_rows(engine, [record], written=False)
                except RunFailed as error:
                    record.error = str(error)

    def _run_rows(self, engine: Engine, records: list[_Record], *, written: bool) -> None:
        """Runs records, and copies of the first where the size is larger than their number."""
        size = self._size_for[len(records)]
        if size > len(records) or not written:
            _write(engine.buffers, records + records[:1] * (size - len(records)))
        engine.run(size)
        self.runs += 1
        self.calls += len(records)
        _read(engine.buffers, records)


def _part(array: Array, spec: TensorSpec, index: int) -> Array:
    """Record number `index` of an array, a view."""
    if not spec.shape:
        return array
    size = spec.shape[0]
    return array[index * size : (index + 1) * size]


def _write(buffers: Buffers, batch: Sequence[_Record]) -> None:
    for position, rows in enumerate(buffers.inputs):
        records = rows.records(len(batch))
        for row, record in enumerate(batch):
            records[row] = record.inputs[position].reshape(-1)


def _read(buffers: Buffers, batch: Sequence[_Record]) -> None:
    for position, rows in enumerate(buffers.outputs):
        records = rows.records(len(batch))
        for row, record in enumerate(batch):
            target = record.outputs[position]
            target[...] = records[row].reshape(target.shape)
