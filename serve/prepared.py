"""What was lowered before, kept in the user's cache: starting again loads no compiler.

It is made from model.json, what the files of weights hold, the flags, and this program's modules.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from sexpgpu.schemas.exported import MODEL, WEIGHTS
from sexpgpu.schemas.tensor_file import Array, MappedTensors
from sexpgpu.serve.hosted import Hosted, Shaping, check_name, file_version, unreadable
from sexpgpu.serve.kept import Kept

#: Packages whose code decides what a model is lowered to.
_PACKAGES = ("sexpgpu.export", "sexpgpu.schemas", "sexpgpu.serve")

#: A hosted model without what is found anew: where it is, and the values of its weights.
_FOUND = ("place", "weights", "identity", "files")
_KEPT = [field.name for field in msgspec.structs.fields(Hosted) if field.name not in _FOUND]
_TYPES = {**get_type_hints(Hosted), "model": bytes}
_Entry: Any = msgspec.defstruct("_Entry", [(name, _TYPES[name]) for name in _KEPT])


def open_export(path: Path, shaping: Shaping) -> Hosted:
    """A directory that export wrote, lowered now or before.

    Raises what reading it raises, E-CKPT-003 where it lacks a weight, and E-EXPORT-002 and -003
    where it cannot be shaped so.
    """
    try:
        with open(path / MODEL, "rb") as file:
            document = file.read()
            seen = {os.path.abspath(path / MODEL): file_version(os.fstat(file.fileno()))}
    except OSError as error:
        raise unreadable(path / MODEL, error) from None
    tensors = MappedTensors(path / WEIGHTS)

    def lower() -> Hosted:
        from sexpgpu.serve.lowering import host_export

        return host_export(path, document, tensors, shaping)

    hosted = _prepared(str(path), [document], [tensors], tensors.tensor, shaping, lower)
    hosted.files |= seen
    return hosted


def open_stored(where: str, shaping: Shaping) -> Hosted:
    """A checkpoint, or the newest of a location, lowered now or before.

    Raises what reading it raises, E-CKPT-004 where it holds no model, and E-EXPORT-002 and -003
    where it cannot be shaped so.
    """
    # It reads locations of every kind: imported where it is needed.
    from sexpgpu.export.storage.checkpoint import open_checkpoint

    stored = open_checkpoint(where)
    documents = [msgspec.json.encode(stored.document), stored.model()]
    weights = stored.weights(trained=shaping.trained)

    def lower() -> Hosted:
        from sexpgpu.serve.lowering import host_checkpoint

        return host_checkpoint(stored, weights.files[0], shaping)

    place = str(stored.location)
    return _prepared(place, documents, weights.files, weights.array, shaping, lower)


def _prepared(
    place: str,
    documents: Sequence[bytes],
    files: Sequence[MappedTensors],
    read: Callable[[str], Array],
    shaping: Shaping,
    lower: Callable[[], Hosted],
) -> Hosted:
    """What was kept, its weights that ONNX Runtime does not read by itself read now; else lowered
    and kept."""
    facts = [place, str(shaping), *_fingerprint()]
    statuses = []
    seen = {}
    for file in files:
        path = file.path.resolve()
        check_name(path)
        facts.append(f"{path} {list(file.header.tensors.values())}")
        seen[str(path)] = file_version(file.status)
        statuses.append(f"{file_version(file.status)} {file.status.st_ctime_ns}")
    made_from = b"\n".join([*documents, *(fact.encode() for fact in facts)])
    identity = made_from + "\n".join(statuses).encode()
    kept = Kept("hosted", made_from)
    entry = _entry(kept.read())
    if entry is not None:
        values = {name: getattr(entry, name) for name in _KEPT}
        weights = {name: read(path) for name, path in entry.weight_paths.items()}
        return Hosted(place=place, weights=weights, identity=identity, files=seen, **values)
    hosted = lower()
    hosted.identity = identity
    hosted.files = seen
    kept.write(msgspec.msgpack.encode({name: getattr(hosted, name) for name in _KEPT}))
    return hosted


def _entry(made: bytes | None) -> Any:
    if made is None:
        return None
    try:
        return msgspec.msgpack.decode(made, type=_Entry)
    except msgspec.DecodeError:
        return None


def _fingerprint() -> Iterator[str]:
    """Sizes and times of the modules' files: another version has others."""
    for package in _PACKAGES:
        spec: Any = find_spec(package)
        for root in spec.submodule_search_locations:
            yield from _files(root)
    onnx = find_spec("onnx")
    if onnx is not None and onnx.origin is not None:
        yield _version(onnx.origin.replace("__init__", "version"))


def _files(folder: str) -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir() and not entry.name.startswith("_"):
            yield from _files(entry.path)
        elif entry.is_file() and entry.name.endswith((".py", ".sx")):
            yield _version(entry.path)


def _version(path: str) -> str:
    found = os.stat(path)
    # Whoever unpacks packages may give all files one time of change; the system notes its own.
    return f"{path} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
