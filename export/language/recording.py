"""What a checkpoint records of a program, and the program compiled again from such a record."""

from __future__ import annotations

import difflib
import math
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sexpgpu.export.graph.document import FrozenSource, ModelFile
from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.alone import Alone
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.program import Program, compile_program
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas import checkpoint as schema
from sexpgpu.schemas.errors import SexpgpuError


def producer() -> str:
    """`sexpgpu 0.1.0`"""
    try:
        return f"sexpgpu {version('sexpgpu')}"
    except PackageNotFoundError:
        return "sexpgpu"


def record(program: Program, step: int) -> schema.Checkpoint:
    """checkpoint.json of a step of the program's run, before its files are known.

    Every `:load` file is read through once for its SHA-256.
    """
    parameters = program.parameters()
    return schema.Checkpoint(
        producer=producer(),
        step=step,
        slug=program.slug,
        variant=program.variant,
        knobs={name: record_knob(knob.value) for name, knob in program.knobs.items()},
        precision=program.precision,
        sources=[schema.SourceText(s.name, s.text) for s in program.sources],
        parameters=[record_parameter(path, p) for path, p in parameters.items()],
        loads=[record_load(path, p) for path, p in parameters.items() if p.load],
    )


def record_parameter(path: str, parameter: Parameter) -> schema.Parameter:
    """A parameter's path, shape and dtype."""
    shape = [d for d in parameter.type.shape if isinstance(d, int)]
    return schema.Parameter(path, shape, parameter.type.dtype.value)


def record_load(path: str, parameter: Parameter) -> schema.LoadedParameter:
    """Where a parameter is loaded from.  Raises E-LOAD-001 where the file is missing."""
    assert parameter.load is not None
    sha256 = open_source(parameter.load).sha256()
    key = parameter.key or path
    return schema.LoadedParameter(path, parameter.load, key, sha256, parameter.frozen)


def record_model(
    alone: Alone, document: schema.Checkpoint, checkpoint: str | None = None
) -> ModelFile:
    """model.json of a traced model."""
    frozen = {
        load.parameter: FrozenSource(load.file, load.key, load.sha256)
        for load in document.loads
        if load.frozen and load.parameter in alone.parameters
    }
    step = None if checkpoint is None else document.step
    return ModelFile(alone.graph, document.precision, checkpoint, step, document.slug, frozen)


def recompile(path: Path, document: schema.Checkpoint, place: str) -> Program:
    """The file under the variant and knobs that a checkpoint records.

    Raises E-CKPT-005 where its parameters or `:load` files are not the checkpoint's.
    """
    overrides = {name: recall_knob(value) for name, value in document.knobs.items()}
    program = compile_program(path, document.variant, overrides)
    _compare_parameters(program, document, place)
    _compare_loads(program, document, place)
    return program


def moved_lines(program: Program, document: schema.Checkpoint) -> list[str]:
    """The lines of the program that are not those the checkpoint's run was compiled from."""
    before = {Path(source.name).name: source.text for source in document.sources}
    lines: list[str] = []
    for source in program.sources:
        name = Path(source.name).name
        old, new = before.get(name, "").splitlines(), source.text.splitlines()
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for kind, a, b, c, d in matcher.get_opcodes():
            if kind != "equal":
                lines += [f"{name}:{a + i + 1}: - {line}" for i, line in enumerate(old[a:b])]
                lines += [f"{name}:{c + i + 1}: + {line}" for i, line in enumerate(new[c:d])]
    return lines


def record_knob(value: object) -> schema.KnobValue:
    """A knob's value as checkpoint.json has it."""
    if isinstance(value, Keyword):
        return schema.Keyword(value.name)
    if isinstance(value, DType):
        return schema.DTypeValue(value.value)
    if isinstance(value, tuple):
        return [record_knob(item) for item in value]  # type: ignore[misc]
    if isinstance(value, float) and not math.isfinite(value):
        return schema.NonFinite.of(value)
    assert value is None or isinstance(value, bool | int | float | str)
    return value


def recall_knob(value: object) -> object:
    """The language's value of what checkpoint.json has."""
    if isinstance(value, schema.Keyword):
        return Keyword(value.value)
    if isinstance(value, schema.DTypeValue):
        return DType(value.value)
    if isinstance(value, schema.NonFinite):
        return float(value)
    if isinstance(value, list):
        return tuple([recall_knob(item) for item in value])
    return value


def _compare_parameters(program: Program, document: schema.Checkpoint, place: str) -> None:
    mine = {path: record_parameter(path, p) for path, p in program.parameters().items()}
    theirs = {parameter.path: parameter for parameter in document.parameters}
    differences = [
        f"`{path}` is {_type(theirs.get(path))} in the checkpoint, "
        f"{_type(mine.get(path))} in the file"
        for path in dict.fromkeys([*theirs, *mine])
        if mine.get(path) != theirs.get(path)
    ]
    if differences:
        raise _other_program(program, place, "parameters", differences)


def _compare_loads(program: Program, document: schema.Checkpoint, place: str) -> None:
    def facts(file: str, key: str, frozen: bool) -> str:
        return f"{file} key {key}" + (", frozen" if frozen else "")

    mine = {
        path: facts(parameter.load, parameter.key or path, parameter.frozen)
        for path, parameter in program.parameters().items()
        if parameter.load
    }
    theirs = {load.parameter: facts(load.file, load.key, load.frozen) for load in document.loads}
    differences = [
        f"`{path}` is loaded from {theirs.get(path, 'nothing')} in the checkpoint, "
        f"{mine.get(path, 'nothing')} in the file"
        for path in dict.fromkeys([*theirs, *mine])
        if mine.get(path) != theirs.get(path)
    ]
    if differences:
        raise _other_program(program, place, ":load files", differences)


def _type(parameter: schema.Parameter | None) -> str:
    return "not there" if parameter is None else f"{parameter.shape} {parameter.dtype}"


def _other_program(program: Program, place: str, what: str, differences: list[str]) -> SexpgpuError:
    shown = differences[:8] + ([f"… {len(differences) - 8} more"] if len(differences) > 8 else [])
    return SexpgpuError(
        "E-CKPT-005",
        f"the checkpoint's {what} are not those of {program.path}",
        place=place,
        notes=shown,
        help="export it with the file that its run was compiled from",
    )
