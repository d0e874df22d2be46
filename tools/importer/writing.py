"""A model of somebody else's as a program: written, compiled, and held against its weights."""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.storage.sources import ENDINGS
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.beside import notes_beside
from sexpgpu.tools.importer.families import HARMLESS, draft_of
from sexpgpu.tools.importer.printing import printable
from sexpgpu.tools.importer.program import Draft
from sexpgpu.tools.importer.source import Source, open_model


@dataclass
class Imported:
    """What was written, and what is said of it."""

    program: Path
    family: str
    weights: Path
    parameters: int
    numbers: int
    notes: list[str] = field(default_factory=list)
    #: Keys of the configuration that nobody knows, and tensors that the program does not read.
    unknown: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)


def import_model(
    path: Path, target: Path, *, force: bool = False, as_class: str | None = None
) -> Imported:
    """Writes the program of the model at a path, or of what `as_class` of transformers reads there.

    It is compiled, and its parameters are held against the file's tensors, before it stands in its
    place.  Raises E-IMPORT-001 to E-IMPORT-005 as the model is, E-IMPORT-006 where a file is in the
    way that is not to be replaced, and E-FILE-001 where the system refuses.
    """
    check_target(target, force=force)
    source = open_model(path)
    if as_class is not None:
        source.configuration.put("architectures", [as_class])
    draft = draft_of(source)
    text = draft.text(str(source.weights.path), printable(source.name))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.sx")
    try:
        temporary.write_text(text, encoding="utf-8")
        parameters = _check(temporary, source)
        check_target(target, force=force)
        os.replace(temporary, target)
    except OSError as error:
        raise SexpgpuError(
            "E-FILE-001", f"{target} cannot be written", came=error.strerror or str(error)
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return Imported(
        target,
        draft.name,
        source.weights.path,
        len(parameters),
        sum(parameter.elements for parameter in parameters.values()),
        [*draft.notes, *notes_beside(source.weights.path.parent)],
        source.configuration.unread(HARMLESS),
        _unused(source, draft, parameters),
    )


def check_target(target: Path, *, force: bool) -> None:
    """Raises E-IMPORT-006 where something stands that is not to be replaced."""
    if not os.path.lexists(target):
        return
    is_other = target.name.lower().endswith((*ENDINGS, ".json"))
    if force and target.is_file() and not is_other:
        return
    help: str | None = "choose another name, or replace it with --force"
    if target.is_dir():
        help = None
    elif is_other:
        help = "it is no program: choose another name"
    raise SexpgpuError(
        "E-IMPORT-006",
        f"there is something at {target} already",
        came="a directory" if target.is_dir() else "a file",
        help=help,
    )


#: Parts that stand on top of a model.
_HEAD_PARTS = {
    "classifier", "head", "head-bias", "head-norm", "pooler", "relation", "span", "transform",
}  # fmt: skip


def _check(program: Path, source: Source) -> dict[str, Parameter]:
    """Compiles the program; every parameter must be in the file as it is declared."""
    try:
        parameters = trace_alone(compile_program(program, None, {})).parameters
    except SexpgpuError as error:
        raise SexpgpuError(
            "E-IMPORT-003",
            "no model has the sizes of this configuration",
            place=source.configuration.place,
            came=error.message if error.came is None else f"{error.message}: {error.came}",
            expected=error.expected,
        ) from None
    for path, parameter in parameters.items():
        shape = [d for d in parameter.type.shape if isinstance(d, int)]
        try:
            source.weights.check(parameter.key, parameter.type.dtype, shape)
        except SexpgpuError as error:
            if error.code not in ("E-LOAD-002", "E-LOAD-003"):
                raise
            raise SexpgpuError(
                "E-IMPORT-005",
                "the file's tensors are not those that its configuration speaks of",
                place=str(source.weights.path),
                came=error.message if error.came is None else f"`{parameter.key}`, {error.came}",
                expected=f"`{parameter.key}`, {parameter.type.dtype} {shape}",
                notes=[f"it is to be the parameter `{path}`"],
                help=f"what is below the head is read as another class: --as {source.below}"
                if source.below is not None and _HEAD_PARTS & set(path.split("."))
                else None,
            ) from None
    return parameters


def _unused(source: Source, draft: Draft, parameters: dict[str, Parameter]) -> list[str]:
    """Tensors that no parameter reads, but for those that hold no weights; alike ones together."""
    used = {parameter.key for parameter in parameters.values()} | source.twins
    keys = source.weights.keys()
    rules = [re.compile(rule) for rule in draft.buffers]
    left = [key for key in keys if key not in used and not any(r.fullmatch(key) for r in rules)]
    alike = Counter(re.sub(r"\.\d+\.", ".*.", key) for key in left)
    return [name if count == 1 else f"{name} ({count} of them)" for name, count in alike.items()]
