"""checkpoint.json: what a checkpoint says of itself and of every other file in it.

The document ends with its own seal, the SHA-256 of all bytes before the seal's digits, so that a
flipped bit in it is found as well.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from sexpgpu.schemas.document import check_version, json_schema, read_document
from sexpgpu.schemas.errors import SexpgpuError

VERSION: Final = 1
DOCUMENT = "checkpoint.json"
MODEL = "model.json"
PARAMETERS = "params.safetensors"
AVERAGES = "ema.safetensors"
OPTIMIZER = "optimizer.safetensors"

Sha256: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
DTypeName: TypeAlias = Literal["f32", "f64", "bf16", "i32", "i64", "bool"]
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]

STORED_DTYPES: dict[DTypeName, str] = {
    "f32": "F32",
    "f64": "F64",
    "bf16": "F32",
    "i32": "I32",
    "i64": "I64",
    "bool": "BOOL",
}
"""The safetensors dtype in which a checkpoint keeps a parameter: bf16 is widened, exactly."""


class Keyword(msgspec.Struct, tag_field="type", tag="keyword", frozen=True):
    """A knob's value `:name`."""

    value: str


class DTypeValue(msgspec.Struct, tag_field="type", tag="dtype", frozen=True):
    """A knob's value that is a dtype, `bf16`."""

    value: DTypeName


class NonFinite(msgspec.Struct, tag_field="type", tag="float", frozen=True):
    """A knob's value that JSON has no number for."""

    value: Literal["inf", "-inf", "nan"]

    @classmethod
    def of(cls, number: float) -> NonFinite:
        """Raises ValueError for a finite number."""
        if math.isfinite(number):
            raise ValueError(f"{number} is finite")
        return cls("nan" if math.isnan(number) else "inf" if number > 0 else "-inf")

    def __float__(self) -> float:
        return float(self.value)


Scalar: TypeAlias = bool | int | float | str | Keyword | DTypeValue | NonFinite | None
KnobValue: TypeAlias = Scalar | list[Scalar | list[Scalar | list[Scalar]]]
"""What a knob may be: lists stand three deep at most."""


class SourceText(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One text of the program: the file's name as it was given, and what it said."""

    name: Name
    text: str


class Parameter(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A parameter of the model; one that is frozen stands in no file of the checkpoint."""

    path: Name
    shape: Annotated[list[Size], msgspec.Meta(max_length=64)]
    dtype: DTypeName


class LoadedParameter(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where `:load` took a parameter from; `file` is as the program wrote it."""

    parameter: Name
    file: Name
    key: str
    sha256: Sha256
    frozen: bool


class StoredFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A file beside checkpoint.json."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$(?!\n)")]
    size: Size
    sha256: Sha256


class Checkpoint(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The document.  `files` and `seal` are the writer's to fill in."""

    version: Literal[1] = VERSION
    producer: str
    step: Size
    slug: str
    variant: str | None = None
    knobs: dict[str, KnobValue] = {}
    precision: Literal["f32", "bf16"] = "f32"
    sources: list[SourceText] = []
    parameters: list[Parameter] = []
    loads: list[LoadedParameter] = []
    files: list[StoredFile] = []
    seal: Sha256 = "0" * 64

    def __post_init__(self) -> None:
        """Raises ValueError, which a reader shows as E-JSON-001, for what contradicts itself."""
        paths = {parameter.path for parameter in self.parameters}
        _check_once("parameter", (parameter.path for parameter in self.parameters))
        _check_once("load of", (load.parameter for load in self.loads))
        _check_once("file", (file.name for file in self.files))
        for load in self.loads:
            if load.parameter not in paths:
                raise ValueError(f"loads name {load.parameter!r}, which is no parameter")
        if any(file.name == DOCUMENT for file in self.files):
            raise ValueError(f"files name {DOCUMENT} itself")

    @property
    def frozen(self) -> dict[str, LoadedParameter]:
        """The frozen parameters, by path."""
        return {load.parameter: load for load in self.loads if load.frozen}

    @property
    def stored(self) -> list[Parameter]:
        """The parameters that params.safetensors holds."""
        frozen = self.frozen
        return [parameter for parameter in self.parameters if parameter.path not in frozen]

    def file(self, name: str) -> StoredFile | None:
        """The record of a file, or None where the checkpoint has none of this name."""
        return next((file for file in self.files if file.name == name), None)


_SEAL = re.compile(rb'"seal": "([0-9a-f]{64})"\n\}\n\Z')


def read_checkpoint(data: bytes, place: str) -> Checkpoint:
    """Read checkpoint.json.

    Raises E-JSON-002 for a newer version, E-CKPT-003 where the seal is not that of the bytes, and
    E-JSON-001 for a sealed document that breaks the format.
    """
    check_version(data, place, VERSION)
    match = _SEAL.search(data, max(0, len(data) - 100))
    if match is None or _seal(data[: match.start(1)]) != match.group(1).decode():
        raise SexpgpuError(
            "E-CKPT-003",
            f"{DOCUMENT} is damaged",
            place=place,
            came="a document that is truncated or has changed"
            if match is None
            else "bytes that are not those its seal was made for",
            help="copy the checkpoint again, or name an earlier step",
        )
    return read_document(data, Checkpoint, place, version=VERSION)


def write_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The bytes of checkpoint.json, sealed; the same document gives the same bytes."""
    text = msgspec.json.format(msgspec.json.encode(checkpoint), indent=2) + b"\n"
    if (match := _SEAL.search(text, len(text) - 100)) is None:
        raise AssertionError("the seal is the document's last field")
    head = text[: match.start(1)]
    return head + _seal(head).encode() + text[match.end(1) :]


def checkpoint_schema() -> dict[str, Any]:
    """The JSON Schema of checkpoint.json."""
    return json_schema(Checkpoint, title="sexpgpu checkpoint.json, version 1")


def _seal(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_once(what: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"{what} {name!r} stands {times} times")
