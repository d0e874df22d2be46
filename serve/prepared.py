"""What an export was lowered to before, kept in the user's cache: starting again loads no compiler.

An entry holds everything that it was made from, to be compared byte by byte: model.json, what the
file of weights holds, the flags, and which version of this program's modules.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from sexpgpu.export.storage.folders import cache_directory
from sexpgpu.schemas.exported import MODEL, WEIGHTS
from sexpgpu.schemas.tensor_file import MappedTensors
from sexpgpu.serve.hosted import Hosted, Shaping

#: Entries that are kept; the oldest go first.
_ENTRIES = 64
#: Larger graphs are few, and take long to load anyway.
_LARGEST = 64 << 20
#: Packages whose code decides what a model is lowered to.
_PACKAGES = ("sexpgpu.export", "sexpgpu.schemas", "sexpgpu.serve", "onnx")

#: A hosted model without what is found anew: where it is, and the values of its weights.
_KEPT = [field.name for field in fields(Hosted) if field.name not in ("place", "weights", "folder")]
_TYPES = {**get_type_hints(Hosted), "model": bytes}
_Entry: Any = msgspec.defstruct(
    "_Entry", [("made_from", bytes), *((name, _TYPES[name]) for name in _KEPT)]
)


def open_export(path: Path, shaping: Shaping) -> Hosted:
    """A directory that export wrote, lowered now or before.

    Raises what reading it raises, E-CKPT-003 where it lacks a weight, and E-EXPORT-002 and -003
    where it cannot be shaped so.
    """
    document = (path / MODEL).read_bytes()
    tensors = MappedTensors(path / WEIGHTS)
    prepared = _Prepared(path, document, tensors, shaping)
    hosted = prepared.read()
    if hosted is None:
        from sexpgpu.serve.lowering import host_export

        hosted = host_export(path, document, tensors, shaping)
        prepared.keep(hosted)
    return hosted


class _Prepared:
    """The entry of one export, shaped by the flags; there may be none yet."""

    def __init__(
        self, place: Path, document: bytes, tensors: MappedTensors, shaping: Shaping
    ) -> None:
        self._place = str(place)
        self._tensors = tensors
        held = [(entry.name, entry.dtype, entry.shape) for entry in tensors.header.tensors.values()]
        rest = "\n".join([self._place, str(shaping), str(held), *_fingerprint()])
        self._made_from = document + rest.encode()
        self._path = cache_directory() / "hosted" / f"{zlib.crc32(self._made_from):08x}"

    def read(self) -> Hosted | None:
        """The model, its weights mapped; None where there is no entry."""
        try:
            if self._path.stat().st_size > _LARGEST:
                return None
            entry = msgspec.msgpack.decode(self._path.read_bytes(), type=_Entry)
        except (OSError, msgspec.DecodeError):
            return None
        if entry.made_from != self._made_from:
            return None
        kept = {name: getattr(entry, name) for name in _KEPT}
        weights = {name: self._tensors.tensor(path) for name, path in entry.weight_paths.items()}
        return Hosted(place=self._place, weights=weights, **kept)

    def keep(self, hosted: Hosted) -> None:
        """Makes an entry, in place of the oldest; where it cannot be written there is none."""
        kept = {name: getattr(hosted, name) for name in _KEPT}
        data = msgspec.msgpack.encode({"made_from": self._made_from, **kept})
        if len(data) > _LARGEST:
            return
        folder = self._path.parent
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = folder / f".{os.getpid()}"
            beside.write_bytes(data)
            beside.replace(self._path)
            entries = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
            for path in entries[:-_ENTRIES]:
                path.unlink()


def _fingerprint() -> Iterator[str]:
    """Sizes and times of the modules' files: another version has others."""
    for package in _PACKAGES:
        spec: Any = find_spec(package)
        for root in spec.submodule_search_locations:
            yield from _files(root, deep=package != "onnx")


def _files(folder: str, *, deep: bool) -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir() and deep and not entry.name.startswith("_"):
            yield from _files(entry.path, deep=True)
        elif entry.is_file() and entry.name.endswith((".py", ".so", ".sx")):
            found = entry.stat()
            yield f"{entry.path} {found.st_size} {found.st_mtime_ns}\n"
