"""What a checkpoint records of a program, and the program compiled again from such a record."""

from __future__ import annotations

import difflib
import math
import os.path
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

#: Larger changes are told by their number of lines: comparing takes time that grows as a square.
_COMPARED_LIMIT = 4_000_000


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

    Raises E-CKPT-005 where its parameters or `:load` files are not the checkpoint's, and what
    compiling it raises; a knob or variant that it has no longer is E-KNOB-001 or E-KNOB-002.
    """
    overrides = {name: recall_knob(value) for name, value in document.knobs.items()}
    try:
        program = compile_program(path, document.variant, overrides)
    except SexpgpuError as error:
        if error.code.startswith("E-KNOB"):
            error.notes.append(f"the knobs and the variant are those that {place} records")
        raise
    _compare_parameters(program, document, place)
    _compare_loads(program, document, place)
    return program


def moved_lines(program: Program, document: schema.Checkpoint) -> list[str]:
    """The lines of the program that are not those the checkpoint's run was compiled from."""
    before = _by_place([(source.name, source.text) for source in document.sources])
    after = _by_place([(source.name, source.text) for source in program.sources])
    lines: list[str] = []
    for name in dict.fromkeys([*after, *before]):
        lines += _changes(name, _lines(before.get(name, "")), _lines(after.get(name, "")))
    return lines


def _lines(text: str) -> list[str]:
    """The lines of a text, as the reader counts them."""
    return text.removesuffix("\n").split("\n") if text else []


def _by_place(sources: list[tuple[str, str]]) -> dict[str, str]:
    """Texts by their path from the first one's directory: a program may have been moved whole."""
    start = os.path.dirname(sources[0][0]) if sources else ""
    return {os.path.relpath(name, start or "."): text for name, text in sources}


def _changes(name: str, old: list[str], new: list[str]) -> list[str]:
    """The lines of a file that differ, each with its number before or after."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) * len(new) > _COMPARED_LIMIT:
        return [f"{name}:{start + 1}: {len(old):,} lines became {len(new):,} others"]
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            lines += [f"{name}:{start + i + 1}: - {old[i]}" for i in range(a, b)]
            lines += [f"{name}:{start + i + 1}: + {new[i]}" for i in range(c, d)]
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
        help="name the file that its run was compiled from",
    )
