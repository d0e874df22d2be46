"""What is imported: a directory of transformers or a GGUF file, found and opened."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sexpgpu.export.storage.gguf_source import GgufSource
from sexpgpu.export.storage.sources import open_source
from sexpgpu.export.storage.weight_source import WeightSource
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import PIECE
from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.gguf_configuration import configuration_of
from sexpgpu.tools.importer.printing import listed, printable

CONFIG = "config.json"
#: Files of weights in a directory, the first that is there.
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)

_CONFIG_LIMIT = 4 << 20
_EXPECTED = f"a directory with {CONFIG} and {WEIGHTS[0]}, or a .gguf file"


@dataclass
class Source:
    """A model of somebody else's: its configuration and its file of weights.

    `layout` is how the file's tensors are called and laid out: as transformers or as llama.cpp
    has it.
    """

    name: str
    configuration: Configuration
    weights: WeightSource
    layout: str
    #: Tensors that turned out to hold the same values as one that is used.
    twins: set[str] = field(default_factory=set)
    #: transformers' class of the same model without its head, where it has one.
    below: str | None = None

    def __post_init__(self) -> None:
        self._keys = set(self.weights.keys())

    @property
    def is_gguf(self) -> bool:
        return self.layout == "gguf"

    def has(self, key: str) -> bool:
        """Whether the file has a tensor."""
        return key in self._keys

    def prefix(self, candidates: Iterable[str], key: str) -> str:
        """What stands before the names of a model's tensors: the first with which one is there."""
        options = list(candidates)
        return next((option for option in options if option + key in self._keys), options[0])

    def is_twin(self, key: str, other: str) -> bool:
        """Whether the first of two tensors of the file holds the same values as the second."""
        if self.weights.describe(key) != self.weights.describe(other):
            return False
        a, b = (self.weights.stored(name).reshape(-1).view(np.uint8) for name in (key, other))
        starts = range(0, len(a), PIECE)
        same = all(np.array_equal(a[i : i + PIECE], b[i : i + PIECE]) for i in starts)
        self.twins |= {key} if same else set()
        return same


def open_model(path: Path) -> Source:
    """Finds the configuration and the weights at a path.

    Raises E-IMPORT-001 where they are not there, E-IMPORT-003 where the configuration cannot be
    read, and what opening a file of weights raises.
    """
    # `exists` fails for a name that is too long to be one, `lexists` does not
    if not os.path.lexists(path) or not path.exists():
        raise SexpgpuError("E-IMPORT-001", f"there is nothing at {path}", expected=_EXPECTED)
    if path.is_dir():
        folder, weights = path, _weights_of(path)
    else:
        folder, weights = path.parent, _weights_of(path.parent) if path.name == CONFIG else path
    source = open_source(_named(weights))
    if isinstance(source, GgufSource):
        return Source(weights.stem, configuration_of(source), source, "gguf")
    return Source(_name_of(folder), _read(folder / CONFIG), source, "transformers")


def _name_of(folder: Path) -> str:
    """The name of a model's directory; in Hugging Face's cache that of the repository."""
    whole = folder.absolute()
    if whole.parent.name == "snapshots" and whole.parents[1].name.startswith("models--"):
        return whole.parents[1].name.removeprefix("models--").replace("--", "/")
    return folder.resolve().name


def _weights_of(folder: Path) -> Path:
    """The one file of weights of a directory."""
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    found = sorted(folder.glob("*.gguf"))
    if len(found) == 1:
        return found[0]
    files = sorted(folder.iterdir())
    raise SexpgpuError(
        "E-IMPORT-001",
        "the directory holds several GGUF files" if found else "there are no weights",
        place=str(folder),
        came=listed([file.name for file in files], 8) or "an empty directory",
        expected=_EXPECTED,
        help="name one of them" if found else _elsewhere(files),
    )


def _elsewhere(files: list[Path]) -> str | None:
    """Where the weights may be that a directory with these files and directories has not."""
    other = (file for file in files if file.name.endswith((".safetensors", ".bin")))
    if (named := next(other, None)) is not None:
        return f"name the file, if these are the weights: {printable(str(named), 1000)}"
    below = (file for file in files if (file / CONFIG).is_file() and (file / WEIGHTS[0]).is_file())
    if (named := next(below, None)) is not None:
        return f"name the directory that holds them: {printable(str(named), 1000)}"
    return None


def _named(path: Path) -> Path:
    """The path as a program names it: from the current directory where it is below that."""
    whole, here = os.path.abspath(path), os.getcwd()
    if any("\ud800" <= character <= "\udfff" for character in whole):
        raise SexpgpuError(
            "E-IMPORT-001",
            "the path of the weights is not UTF-8, and no program can name it",
            place=printable(whole, 1000),
            help="rename what is in it",
        )
    return Path(os.path.relpath(whole, here) if whole.startswith(here + os.sep) else whole)


def _read(path: Path) -> Configuration:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _malformed(path, "it is not a file")
        if status.st_size > _CONFIG_LIMIT:
            raise _malformed(path, "it is larger than 4 MiB")
        values: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SexpgpuError(
            "E-IMPORT-001",
            f"there is no {CONFIG} beside the weights",
            place=str(path.parent),
            expected=_EXPECTED,
        ) from None
    except OSError as error:
        raise SexpgpuError(
            "E-FILE-001", f"cannot read the file: {error.strerror}", place=str(path)
        ) from None
    except (ValueError, RecursionError) as error:
        raise _malformed(path, str(error)) from None
    if not isinstance(values, dict):
        raise _malformed(path, "it holds no keys and values")
    return Configuration(values, str(path))


def _malformed(path: Path, reason: str) -> SexpgpuError:
    return SexpgpuError("E-IMPORT-003", f"{path.name} cannot be read", place=str(path), came=reason)
