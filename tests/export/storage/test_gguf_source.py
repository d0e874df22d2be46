"""What a GGUF file's header says besides its tensors."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import pytest

from sexpgpu.export.storage.gguf_source import GgufSource
from sexpgpu.schemas.errors import SexpgpuError


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def test_values_of_every_kind(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 60_000)
    writer.add_int16("i16", -300)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -70_000)
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -(2**40))
    writer.add_float32("f32", 1e-5)
    writer.add_float64("f64", 1e-5)
    writer.add_bool("yes", True)
    writer.add_string("word", "né")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("flags", [True, False])
    writer.add_array("many", list(range(5_000)))
    writer.add_array("words", ["a", "b"])
    writer.add_string("essay", "x" * 5_000)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert GgufSource(tmp_path / "a.gguf").metadata == {
        "general.architecture": "llama",
        "u8": 200,
        "i8": -3,
        "u16": 60_000,
        "i16": -300,
        "u32": 4_000_000_000,
        "i32": -70_000,
        "u64": 2**63,
        "i64": -(2**40),
        # the shortest decimal of what 32 bits hold
        "f32": 1e-5,
        "f64": 1e-5,
        "yes": True,
        "word": "né",
        "numbers": [1, 2, 3],
        "flags": [True, False],
    }


def test_a_key_stands_once(tmp_path: Path) -> None:
    pair = text("k") + struct.pack("<II", 4, 1)
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + pair * 2)
    with pytest.raises(SexpgpuError) as caught:
        GgufSource(tmp_path / "a.gguf")
    assert caught.value.code == "E-LOAD-004"
    assert "`k` twice" in caught.value.message
