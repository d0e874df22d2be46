"""The checkpoints of one run: written step by step, and read again where it goes on."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import jax.numpy as jnp
import msgspec
import numpy as np

from sexpgpu.export.graph.document import write_model
from sexpgpu.export.language.alone import Alone
from sexpgpu.export.language.program import Program
from sexpgpu.export.language.recording import moved_lines, producer, record, record_model
from sexpgpu.export.storage.checkpoint import (
    StoredCheckpoint,
    list_steps,
    open_checkpoint,
    step_name,
)
from sexpgpu.export.storage.checkpoint_writer import TensorSet, save_checkpoint
from sexpgpu.export.storage.location import Location
from sexpgpu.export.storage.retention import remove_leftovers, remove_step
from sexpgpu.schemas import checkpoint as schema
from sexpgpu.schemas.checkpoint import AVERAGES, OPTIMIZER
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import Array, MappedTensors
from sexpgpu.tools.train.engine import Arrays, State
from sexpgpu.tools.train.state import flatten_state, restore_state

_DATA = "data"
_SHOWN = 8


class RunStore:
    """Where a run's checkpoints are; while it is open, no other run writes there.

    `data` is the fingerprint of the run's data.  Raises E-RUN-004 where another run is under way.
    """

    def __init__(
        self, program: Program, location: Location, alone: Alone | None, data: str
    ) -> None:
        self.location = location
        self._program = program
        self._alone = alone
        self._data = np.frombuffer(hashlib.sha256(data.encode()).digest(), np.int32)
        self._document = record(program, 0)
        self._replaced: list[Location] = []
        self._lock = _lock(location)
        remove_leftovers(location)

    def close(self) -> None:
        """Others may write there from now on."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def newest(self) -> StoredCheckpoint | None:
        """The newest complete step, if there is any."""
        try:
            return open_checkpoint(self.location)
        except SexpgpuError as error:
            if error.code == "E-CKPT-001":
                return None
            raise

    def begin_anew(self) -> None:
        """The steps that are there now go when the first new one is whole."""
        with suppress(SexpgpuError):
            self._replaced = list_steps(self.location)

    def check_same(self, stored: StoredCheckpoint) -> None:
        """Raises E-RUN-003 where the checkpoint is another run's, with what differs."""
        before, now = stored.document, self._document
        notes: list[str] = []
        if before.variant != now.variant:
            notes.append(f"variant: {before.variant or 'none'} before, {now.variant or 'none'} now")
        for name in dict.fromkeys([*before.knobs, *now.knobs]):
            old, new = (_shown(knobs, name) for knobs in (before.knobs, now.knobs))
            if old != new:
                notes.append(f"knob {name}: {old} before, {new} now")
        loads = {load.parameter: load for load in before.loads}
        for load in now.loads:
            if loads.get(load.parameter) != load:
                notes.append(f":load of {load.parameter}: {load.file} is not what it was")
        notes += moved_lines(self._program, before)
        if notes:
            left = len(notes) - _SHOWN
            raise SexpgpuError(
                "E-RUN-003",
                "the location holds another run",
                place=str(stored.location),
                help="name another location, restore the file, or begin anew with --fresh",
                notes=notes[:_SHOWN] + ([f"… {left} more"] if left > 0 else []),
            )

    def restore(self, stored: StoredCheckpoint, template: State) -> State:
        """The state after the step, of the template's structure.

        Raises E-RUN-002 where it is not this run's, E-RUN-003 where the data is another, and what
        reading a checkpoint raises.
        """
        try:
            path = stored.path(OPTIMIZER)
        except KeyError:
            raise SexpgpuError(
                "E-RUN-002",
                f"the checkpoint cannot be resumed: it has no {OPTIMIZER}",
                place=str(stored.location),
                help="begin anew with --fresh, or load its weights with `:load`",
            ) from None
        with MappedTensors(path) as tensors:
            kept = {name: np.array(tensors.tensor(name)) for name in tensors}
        data = kept.pop(_DATA, None)
        if data is None or not np.array_equal(data, self._data):
            raise SexpgpuError(
                "E-RUN-003",
                "the data is not what it was when the checkpoint was written",
                place=str(stored.location),
                help="restore the files of `:train`, or begin anew with --fresh",
            )
        rest = restore_state(_resumed(template), kept, str(path))
        weights = stored.weights(trained=True)
        parameters = {name: jnp.array(weights.array(name)) for name in template.parameters}
        averages: Arrays = {}
        if template.averages:
            with MappedTensors(stored.path(AVERAGES)) as tensors:
                averages = {name: jnp.array(tensors.tensor(name)) for name in template.averages}
        return State(parameters, averages, rest["optimizer"], rest["counter"], jnp.zeros((), bool))

    def save(self, step: int, state: State, rest: Mapping[str, Array]) -> Location:
        """Writes a step; `rest` are the parameters that are not trained.

        Then removes the steps that `:keep` does not keep, and those of a run that this one
        replaces.  Raises what `save_checkpoint` and `remove_step` raise.
        """
        document = msgspec.structs.replace(self._document, step=step)
        frozen = document.frozen
        stored = {p.path: p for p in document.parameters if p.path not in frozen}
        trained = {path: np.asarray(array) for path, array in state.parameters.items()}
        averages = {path: np.asarray(array) for path, array in state.averages.items()}
        target = self.location / step_name(step)
        values = trained | {path: rest[path] for path in stored if path not in trained}
        try:
            with self._free(target) as location:
                save_checkpoint(
                    location,
                    document,
                    TensorSet([*stored.values()], values.__getitem__),
                    averages=TensorSet([stored[path] for path in averages], averages.__getitem__)
                    if averages
                    else None,
                    optimizer=TensorSet.of({_DATA: self._data, **flatten_state(_resumed(state))}),
                    model=self._model(document, target),
                )
        except SexpgpuError:
            # Where the disk is full, what was written of it only stands in the way.
            remove_leftovers(self.location)
            raise
        self._tidy(target)
        return target

    @contextmanager
    def _free(self, target: Location) -> Iterator[Location]:
        """Where to write a step: beside one of its name that a run left which this one replaces."""
        if all(old.name != target.name for old in self._replaced):
            yield self.location
            return
        if not self.location.is_local:
            # Nothing can be renamed there.
            remove_step(target)
            yield self.location
            return
        beside = self.location / f".{target.name}.{secrets.token_hex(4)}"
        yield beside
        remove_step(target)
        os.rename((beside / target.name).path, target.path)
        os.rmdir(beside.path)

    def _model(self, document: schema.Checkpoint, target: Location) -> bytes | None:
        if self._alone is None:
            return None
        return write_model(record_model(self._alone, document, str(target)), producer())

    def _tidy(self, newest: Location) -> None:
        for old in self._replaced:
            if old.name != newest.name:
                remove_step(old)
        self._replaced = []
        keep = self._program.run.keep if self._program.run is not None else None
        if keep is not None:
            for old in list_steps(self.location)[keep:]:
                remove_step(old)


def _resumed(state: State) -> dict[str, Any]:
    """What of a state stands in no other file."""
    return {"optimizer": state.optimizer, "counter": state.counters}


def _shown(knobs: Mapping[str, schema.KnobValue], name: str) -> str:
    return msgspec.json.encode(knobs[name]).decode() if name in knobs else "not there"


def _lock(location: Location) -> int | None:
    """The directory, locked until it is closed or the process ends; None on an object store."""
    if not location.is_local:
        return None
    location.make_directory()
    try:
        handle = os.open(location.path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SexpgpuError(
            "E-LOC-002",
            "the location cannot be read",
            place=str(location),
            came=error.strerror or str(error),
        ) from None
    if not os.access(location.path, os.W_OK | os.X_OK):
        # Better known now than at the first checkpoint.
        os.close(handle)
        raise SexpgpuError(
            "E-LOC-002",
            "the location cannot be written",
            place=str(location),
            came="this user may only read there",
        )
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise SexpgpuError(
            "E-RUN-004",
            "another run writes its checkpoints there",
            place=str(location),
            help="wait until it ends or stop it, or name another location",
        ) from None
    except OSError:
        # A file system without locks: nothing to be known.
        return handle
    return handle
