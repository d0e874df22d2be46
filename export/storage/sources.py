"""What `:load` reads: one table of file endings and their readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from sexpgpu.export.storage.gguf_source import GgufSource
from sexpgpu.export.storage.hdf5_source import Hdf5Source
from sexpgpu.export.storage.numpy_source import NpySource, NpzSource
from sexpgpu.export.storage.safetensors_source import SafetensorsSource
from sexpgpu.export.storage.sharded_source import ShardedSource
from sexpgpu.export.storage.torch_source import TorchSource
from sexpgpu.export.storage.weight_source import WeightSource, check_file, unreadable
from sexpgpu.schemas.errors import SexpgpuError

_FORMATS: dict[str, Callable[[Path], WeightSource]] = {
    ".safetensors": SafetensorsSource,
    ".safetensors.index.json": ShardedSource,
    ".npz": NpzSource,
    ".npy": NpySource,
    ".gguf": GgufSource,
    ".bin.index.json": ShardedSource,
    **dict.fromkeys((".pt", ".pth", ".bin", ".ckpt"), TorchSource),
    **dict.fromkeys((".h5", ".hdf5", ".keras"), Hdf5Source),
}

#: How the names of files of weights end.
ENDINGS = tuple(_FORMATS)


def open_source(path: str | Path) -> WeightSource:
    """Open a file of weights; a relative path starts at the current directory.

    Raises E-LOAD-001 where the file is missing, E-LOAD-004 where it is of another format or
    damaged, and E-TENSORS-001 for a damaged safetensors file.
    """
    path = Path(path)
    try:
        if not path.exists():
            raise SexpgpuError(
                "E-LOAD-001",
                f"the :load file `{path}` is missing",
                place=str(path),
                help="relative paths start at the current directory, now "
                f"{Path.cwd()}; run sexpgpu where the file is",
            )
        check_file(path)
        if (reader := _reader_of(path)) is None:
            raise unreadable(
                path,
                f"the ending `{path.suffix}` is unknown",
                f"files of weights end in {', '.join(ENDINGS)}",
            )
        status = path.stat()
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        return _open(reader, path, identity)
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from None


def _reader_of(path: Path) -> Callable[[Path], WeightSource] | None:
    name = path.name.lower()
    return next((reader for end, reader in _FORMATS.items() if name.endswith(end)), None)


@lru_cache(maxsize=8)
def _open(
    reader: Callable[[Path], WeightSource], path: Path, identity: tuple[int, ...]
) -> WeightSource:
    """A file is opened for every parameter that it holds; its header is read once."""
    return reader(path)
