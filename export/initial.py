"""A checkpoint before training: every parameter as it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sexpgpu.export.graph.document import write_model
from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.alone import try_alone
from sexpgpu.export.language.initializers import initial_value
from sexpgpu.export.language.program import compile_program
from sexpgpu.export.language.recording import producer, record, record_model, record_parameter
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.storage.checkpoint import step_name
from sexpgpu.export.storage.checkpoint_writer import TensorSet, save_checkpoint
from sexpgpu.export.storage.location import Location
from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas.errors import SexpgpuError


@dataclass(frozen=True, slots=True)
class Written:
    """Where the checkpoint is; `obstacle` says why it holds no model, where it holds none."""

    place: str
    parameters: int
    bytes: int
    obstacle: SexpgpuError | None


def write_initial(
    path: Path,
    where: str,
    variant: str | None = None,
    knobs: Mapping[str, object] | None = None,
    *,
    seed: int | None = None,
    step: int = 0,
) -> Written:
    """Writes `<where>/step-<step>` of a program, its averages included where its run keeps them."""
    program = compile_program(path, variant, knobs)
    location = Location.parse(where)
    document = record(program, step)
    parameters = program.parameters()
    if seed is None:
        seed = program.run.seed if program.run is not None else 0
    model = None
    alone, obstacle = try_alone(program)
    if alone is not None:
        place = str(location / step_name(step))
        model = write_model(record_model(alone, document, place), producer())

    def read(name: str) -> Array:
        return first_value(parameters[name], seed)

    stored = [
        record_parameter(name, p) for name, p in parameters.items() if not (p.load and p.frozen)
    ]
    tensors = TensorSet(stored, read)
    averages = tensors if program.run is not None and program.run.ema is not None else None
    target = save_checkpoint(location, document, tensors, averages=averages, model=model)
    size = sum(parameters[p.path].elements * parameters[p.path].type.dtype.itemsize for p in stored)
    return Written(str(target), len(parameters), size, obstacle)


def first_value(parameter: Parameter, seed: int) -> Array:
    """What a parameter begins as: read from its `:load` file, or drawn by its initializer."""
    if parameter.load is None:
        return initial_value(parameter, seed)
    shape = [d for d in parameter.type.shape if isinstance(d, int)]
    source = open_source(parameter.load)
    return source.read(parameter.key or parameter.path, parameter.type.dtype, shape)
