"""PyTorch's checkpoints written by hand, an instruction of their pickle at a time."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sexpgpu.export.graph.types import Array

KINDS = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e"
REBUILD = "torch._utils._rebuild_tensor_v2"


def number(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x10" + value.to_bytes(16, "little", signed=True)


def text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def items(*values: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(values) + b"t"


def named(name: str) -> bytes:
    module, _, last = name.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def call(name: str, *arguments: bytes) -> bytes:
    return named(name) + items(*arguments) + b"R"


def mapping(entries: Mapping[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u"


def storage(kind: str, key: str, count: int) -> bytes:
    parts = text("storage"), named(f"torch.{kind}"), text(key), text("cpu"), number(count)
    return items(*parts) + b"Q"


def tensor(stored: bytes, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> bytes:
    sizes, steps = (items(*map(number, numbers)) for numbers in (shape, strides))
    hooks = call("collections.OrderedDict")
    return call(REBUILD, stored, number(offset), sizes, steps, b"\x89", hooks)


def program(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def write_zip(
    path: Path, body: bytes, storages: Mapping[str, bytes], others: Mapping[str, bytes] = {}
) -> Path:
    """As torch writes it since 1.6."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program(body))
        for name, content in others.items():
            archive.writestr(f"archive/{name}", content)
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)
    return path


def write_sequence(
    path: Path, body: bytes, storages: Mapping[str, tuple[int, bytes]], little: bytes = b"\x88"
) -> Path:
    """As torch wrote it before 1.6; a storage is a count, and the bytes."""
    system = mapping({"protocol_version": number(1001), "little_endian": little})
    keys = b"](" + b"".join(map(text, storages)) + b"e"
    parts = [MAGIC, program(number(1001)), program(system), program(body), program(keys)]
    for count, content in storages.values():
        parts += [struct.pack("<q", count), content]
    path.write_bytes(b"".join(parts))
    return path


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> Path:
    """A state dict of the arrays."""
    entries, storages = {}, {}
    for key, (name, array) in enumerate(arrays.items()):
        stored = storage(KINDS[str(array.dtype)], str(key), array.size)
        strides = [s // array.itemsize for s in np.ascontiguousarray(array).strides]
        entries[name] = tensor(stored, array.shape, strides)
        storages[str(key)] = array.tobytes()
    return write_zip(path, mapping(entries), storages, {"version": b"3\n", "byteorder": b"little"})
