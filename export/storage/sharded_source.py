"""`:load` from several files that an index names, as those of large models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.export.storage.safetensors_source import SafetensorsSource
from sexpgpu.export.storage.torch_source import TorchSource
from sexpgpu.export.storage.weight_source import WeightSource, check_file, unreadable
from sexpgpu.schemas.errors import SexpgpuError

_INDEX_LIMIT = 64 << 20
_FILES_LIMIT = 10_000


_READERS: dict[str, Callable[[Path], WeightSource]] = {
    ".safetensors": SafetensorsSource,
    ".bin": TorchSource,
}


class _Index(msgspec.Struct):
    """`model.safetensors.index.json` or `pytorch_model.bin.index.json`: the file of each tensor."""

    weight_map: dict[str, str]


class ShardedSource(WeightSource):
    """The tensors of all files that an index names; they stand beside it.

    A file is opened when a tensor of it is asked for.  The SHA-256 is that of the files' own, a
    line each in hexadecimal, the index first and the others by name.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if path.stat().st_size > _INDEX_LIMIT:
            raise unreadable(path, "the index is larger than 64 MiB")
        try:
            self._files = msgspec.json.decode(path.read_bytes(), type=_Index).weight_map
        except msgspec.DecodeError as error:
            raise unreadable(path, f"it is no index of files of weights: {error}") from None
        self._names = sorted(set(self._files.values()))
        if len(self._names) > _FILES_LIMIT:
            raise unreadable(path, f"the index names more than {_FILES_LIMIT:,} files")
        for name in self._names:
            if Path(name).name != name or Path(name).suffix not in _READERS:
                raise unreadable(path, f"the index names no file of weights beside it: {name!r}")
        self._open: dict[str, WeightSource] = {}

    def keys(self) -> list[str]:
        return list(self._files)

    def _describe(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        return self._source(key)._describe(key)

    def _array(self, key: str) -> Array:
        return self._source(key)._array(key)

    def sha256(self) -> str:
        own = [super().sha256(), *(self._shard(name).sha256() for name in self._names)]
        return hashlib.sha256("".join(f"{line}\n" for line in own).encode()).hexdigest()

    def _source(self, key: str) -> WeightSource:
        """The file of a key, which it must hold."""
        source = self._shard(self._files[key])
        if key not in set(source.keys()):
            raise unreadable(self.path, f"{source.path.name} does not hold its `{key}`")
        return source

    def _shard(self, name: str) -> WeightSource:
        if name not in self._open:
            path = self.path.parent / name
            if not path.exists():
                raise SexpgpuError(
                    "E-LOAD-001",
                    f"the :load file `{path}` is missing",
                    place=str(self.path),
                    help="the index names it: all files of a sharded model are needed",
                )
            try:
                check_file(path)
                self._open[name] = _READERS[path.suffix](path)
            except OSError as error:
                raise unreadable(path, error.strerror or str(error)) from None
        return self._open[name]
