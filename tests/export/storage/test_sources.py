"""`:load` files: every format's values, and every way in which a file is refused."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import sys
import zipfile
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import DType
from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas.errors import SexpgpuError
from support.torch_files import write_arrays

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((4, 64)).astype(np.float32)
ARRAYS = {
    "block.0.w": WEIGHT,
    "half": WEIGHT.astype(np.float16),
    "double": WEIGHT.astype(np.float64),
    "small": np.arange(-3, 5, dtype=np.int8),
    "bytes": np.arange(8, dtype=np.uint8),
    "whole": np.arange(8, dtype=np.int32),
    "long": np.arange(8, dtype=np.int64),
    "flags": np.array([True, False, True]),
}
BRAIN = WEIGHT.astype(ml_dtypes.bfloat16)


def make(path: Path) -> Path:
    """A file of ARRAYS in the path's format; GGUF has no booleans and no unsigned bytes."""
    if path.suffix == ".safetensors":
        safetensors.numpy.save_file({**ARRAYS, "brain": BRAIN}, path)
    elif path.suffix == ".npz":
        np.savez_compressed(path, **ARRAYS, brain=BRAIN)
    elif path.suffix == ".npy":
        np.save(path, WEIGHT)
    elif path.suffix == ".pt":
        write_arrays(path, {**ARRAYS, "brain": BRAIN})
    else:
        writer = gguf.GGUFWriter(path, "test")
        writer.add_array("words", ["a", "bc"])
        writer.add_array("numbers", [1, 2, 3])
        for name, array in ARRAYS.items():
            if name not in ("flags", "bytes"):
                writer.add_tensor(name, array)
        kind = gguf.GGMLQuantizationType
        writer.add_tensor("brain", BRAIN.view(np.uint8), raw_dtype=kind.BF16)
        blocks = gguf.quants.quantize(WEIGHT, kind.Q8_0)
        writer.add_tensor("blocks", blocks, raw_dtype=kind.Q8_0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return path


@pytest.fixture(params=["w.safetensors", "w.npz", "w.gguf", "w.pt"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(tmp_path / request.param)


def refusal(path: Path, key: str | None = None, dtype: DType = DType.F32) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        open_source(path).read(key, dtype)
    caught.value.render().encode()
    return caught.value


def test_values_are_those_of_the_file(file: Path) -> None:
    source = open_source(file)
    for name in source.keys():  # noqa: SIM118
        if name in ARRAYS:
            array = ARRAYS[name]
            known = {"float16": "f16", "uint8": "u8", "int8": "i8"}.get(str(array.dtype))
            dtype, shape = source.describe(name)
            assert shape == array.shape
            if known is None:
                assert dtype == DType.of(array)
                np.testing.assert_array_equal(source.read(name, DType(dtype)), array)
            else:
                assert dtype == known
    assert {"block.0.w", "brain", "half"} <= set(source.keys())


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_narrow_floats_widen_exactly(file: Path, dtype: DType) -> None:
    source = open_source(file)
    for name, array in (("half", ARRAYS["half"]), ("brain", BRAIN)):
        read = source.read(name, dtype)
        assert read.dtype == dtype.numpy
        np.testing.assert_array_equal(read, array.astype(dtype.numpy))
    assert source.describe("brain") == ("bf16", WEIGHT.shape)
    kept = source.read("brain", DType.BF16)
    np.testing.assert_array_equal(kept.view(np.uint16), BRAIN.view(np.uint16))


def test_every_half_and_every_bfloat16_widens_exactly(tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    halves, brains = bits.view(np.float16), bits.view(ml_dtypes.bfloat16)
    path = tmp_path / "w.safetensors"
    safetensors.numpy.save_file({"half": halves, "brain": brains}, path)
    source = open_source(path)
    widened = bits.astype(np.uint32) << 16
    read = source.read("brain", DType.F32)
    np.testing.assert_array_equal(np.isnan(read), np.isnan(widened.view(np.float32)))
    finite = ~np.isnan(read)
    np.testing.assert_array_equal(read.view(np.uint32)[finite], widened[finite])
    np.testing.assert_array_equal(source.read("half", DType.F32), halves.astype(np.float32))


def test_whole_numbers_widen(file: Path) -> None:
    source = open_source(file)
    np.testing.assert_array_equal(source.read("small", DType.I32), np.arange(-3, 5))
    np.testing.assert_array_equal(source.read("whole", DType.I64), np.arange(8))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("double", DType.F32),
        ("block.0.w", DType.BF16),
        ("half", DType.BF16),
        ("long", DType.I32),
        ("whole", DType.F64),
        ("block.0.w", DType.BOOL),
    ],
)
def test_nothing_is_rounded_silently(file: Path, name: str, dtype: DType) -> None:
    error = refusal(file, name, dtype)
    assert error.code == "E-LOAD-003"
    assert str(dtype) in str(error.expected)
    assert "cast" in str(error.help)


def test_another_shape_is_refused_before_it_is_read(file: Path) -> None:
    source = open_source(file)
    source.check("block.0.w", DType.F32, [4, 64])
    with pytest.raises(SexpgpuError, match="E-LOAD-003") as caught:
        source.read("block.0.w", DType.F32, [64, 4])
    assert caught.value.came == "f32 [4, 64] in the file"
    assert caught.value.expected == "f32 [64, 4]"
    assert "transpose" in str(caught.value.help)


def test_a_key_that_is_not_there_names_the_nearest(file: Path) -> None:
    error = refusal(file, "block.1.w")
    assert error.code == "E-LOAD-002"
    assert str(error.help).startswith("did you mean `block.0.w`")
    assert refusal(file).code == "E-LOAD-002"


def test_the_only_key_needs_no_name(tmp_path: Path) -> None:
    source = open_source(make(tmp_path / "w.npy"))
    assert source.keys() == ["array"]
    assert source.describe(None) == ("f32", (4, 64))
    np.testing.assert_array_equal(source.read(None, DType.F32), WEIGHT)
    np.savez(tmp_path / "none.npz")
    assert "no tensors" in refusal(tmp_path / "none.npz").message


def test_fortran_order_and_empty_arrays(tmp_path: Path) -> None:
    turned = np.asfortranarray(WEIGHT)
    np.save(tmp_path / "w.npy", turned)
    np.savez(tmp_path / "w.npz", turned=turned, empty=np.zeros((0, 3), np.float32))
    for name, key in (("w.npy", None), ("w.npz", "turned")):
        read = open_source(tmp_path / name).read(key, DType.F32)
        np.testing.assert_array_equal(read, WEIGHT)
        assert read.flags.c_contiguous
    assert open_source(tmp_path / "w.npz").read("empty", DType.F32).shape == (0, 3)


def test_big_endian_files_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", WEIGHT.astype(">f4"))
    source = open_source(tmp_path / "w.npy")
    assert source.describe(None)[0] == "f32"
    np.testing.assert_array_equal(source.read(None, DType.F32), WEIGHT)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ2_0"])
def test_quantised_tensors_are_dequantised_in_row_major_shape(tmp_path: Path, kind: str) -> None:
    rows = RANDOM.standard_normal((3, 512)).astype(np.float32)
    quantised = gguf.GGMLQuantizationType[kind]
    blocks = gguf.quants.quantize(rows, quantised)
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "test")
    writer.add_tensor("w", blocks, raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    source = open_source(tmp_path / "w.gguf")
    assert source.describe("w") == ("f32", (3, 512))
    expected = gguf.quants.dequantize(blocks, quantised)
    np.testing.assert_array_equal(source.read("w", DType.F32), expected)


def test_quantised_without_the_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "w.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    error = refusal(path, "block.0.w")
    assert error.code == "E-LOAD-004"
    assert error.help == "pip install 'sexpgpu[gguf]'"


def test_the_hash_is_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    path = make(tmp_path / "w.npy")
    source = open_source(path)
    recorded = source.sha256()
    assert recorded == hashlib.sha256(path.read_bytes()).hexdigest()
    source.require(recorded)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    with pytest.raises(SexpgpuError, match="E-LOAD-001") as caught:
        open_source(path).require(recorded)
    assert "has changed" in caught.value.message


def test_a_missing_file_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal(Path("w.safetensors"))
    assert error.code == "E-LOAD-001"
    assert str(tmp_path) in str(error.help)


@pytest.mark.parametrize("name", ["w.pt", "w", "folder.npz"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.mkdir() if name.startswith("folder") else path.write_bytes(b"1")
    assert refusal(path).code == "E-LOAD-004"


@pytest.mark.parametrize("name", ["w.safetensors", "w.gguf", "w.bin", "w.npz"])
def test_what_git_leaves_in_place_of_a_large_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    error = refusal(path)
    assert (error.code, error.help) == ("E-LOAD-004", "`git lfs pull` fetches it")


def npy(descr: str, shape: str, data: bytes = b"") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x03\x00\x02\x00\x00\x00{}",
        npy("'<f4'", "(1000000000000,)", b"1234"),
        npy("'<f4'", "(-1,)", b""),
        npy("'<f4'", "(1,)", b"123"),
        npy("'<f4'", "(1,)", b"12345"),
        npy("'<f4'", "(0, 4611686018427387904)"),
        npy("'|O'", "(1,)", b"12345678"),
        npy("'<U1'", "(1,)", b"1234"),
        npy("[('a', '<f4')]", "(1,)", b"1234"),
        npy("'<f4'", "(True,)", b"1234")[:-8],
        npy("'<f4'", "(" * 200),
        npy("'<f4'", "1" * 9000),
    ],
)
def test_a_malformed_npy_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.npy").write_bytes(content)
    assert refusal(tmp_path / "w.npy").code == "E-LOAD-004"
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive:
        archive.writestr("a.npy", content)
    assert refusal(tmp_path / "w.npz", "a").code == "E-LOAD-004"


def test_a_zip_that_claims_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    """The sizes in the directory are raised to 1 TiB, and the header agrees with them."""
    elements = (1 << 40) // 4
    content = npy("'<f4'", f"({elements},)", bytes(4096))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo("a.npy")
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, content)
        archive.getinfo("a.npy").file_size = len(content) - 4096 + elements * 4
    (tmp_path / "w.npz").write_bytes(file.getvalue())
    error = refusal(tmp_path / "w.npz", "a")
    assert error.code == "E-LOAD-004"
    assert "more than it can hold" in error.message


def test_a_member_may_have_no_name(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a", npy("'<f4'", "(1,)", bytes(4)))
    renamed = content.getvalue()
    for length, name in ((26, 30), (28, 46)):  # in the member's header, then in the directory
        start = renamed.index(b"PK\x03\x04" if length == 26 else b"PK\x01\x02")
        renamed = renamed[: start + length] + bytes(2) + renamed[start + length + 2 :]
        renamed = renamed[: start + name] + renamed[start + name + 1 :]
    end = renamed.index(b"PK\x05\x06")
    start, size = renamed.index(b"PK\x01\x02"), end - renamed.index(b"PK\x01\x02")
    renamed = renamed[: end + 12] + struct.pack("<II", size, start) + renamed[end + 20 :]
    (tmp_path / "w.npz").write_bytes(renamed)
    assert open_source(tmp_path / "w.npz").read("", DType.F32).tolist() == [0]


def test_booleans_are_0_or_1(tmp_path: Path) -> None:
    (tmp_path / "w.npy").write_bytes(npy("'|b1'", "(2,)", b"\x01\x07"))
    assert "neither 0 nor 1" in refusal(tmp_path / "w.npy", None, DType.BOOL).message


def gguf_file(pairs: bytes = b"", tensors: bytes = b"", counts: tuple[int, int] = (0, 0)) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, *counts) + pairs + tensors


def gguf_text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def gguf_tensor(name: bytes, sizes: list[int], kind: int, offset: int) -> bytes:
    return gguf_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUF", "too short"),
        (b"GGML" + bytes(20), "does not begin"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "byte order"),
        (gguf_file(counts=(2**63, 0)), "more than fit"),
        (gguf_file(counts=(0, 2**63)), "more than fit"),
        (gguf_file(struct.pack("<Q", 2**63) + bytes(9), counts=(0, 1)), "bytes"),
        (gguf_file(gguf_text(b"k") + struct.pack("<I", 99), counts=(0, 1)), "unknown type"),
        (
            gguf_file(gguf_text(b"k") + struct.pack("<IIQ", 9, 8, 2**40), counts=(0, 1)),
            "more than fit",
        ),
        (
            gguf_file(gguf_text(b"k") + struct.pack("<IIQ", 9, 4, 2**62), counts=(0, 1)),
            "truncated",
        ),
        (
            gguf_file(
                gguf_text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9, counts=(0, 1)
            ),
            "type 9",
        ),
        (
            gguf_file(gguf_text(b"general.alignment") + struct.pack("<II", 4, 0), counts=(0, 1)),
            "multiple of 8",
        ),
        (gguf_file(tensors=gguf_tensor(b"\xff", [1], 0, 0), counts=(1, 0)), "UTF-8"),
        (gguf_file(tensors=gguf_tensor(b"a", [1] * 9, 0, 0), counts=(1, 0)), "9 dimensions"),
        (gguf_file(tensors=gguf_tensor(b"a", [1], 0, 0), counts=(1, 0)), "truncated"),
        (gguf_file(tensors=gguf_tensor(b"a", [1], 0, 2**64 - 1), counts=(1, 0)), "truncated"),
        (gguf_file(tensors=gguf_tensor(b"a", [2**64 - 1], 0, 0), counts=(1, 0)), "too large"),
        (gguf_file(tensors=gguf_tensor(b"a", [0, 2**62], 0, 0), counts=(1, 0)), "too large"),
        (gguf_file(tensors=gguf_tensor(b"a", [33], 2, 0), counts=(1, 0)), "number of blocks"),
        (gguf_file(tensors=gguf_tensor(b"a", [1], 999, 0), counts=(1, 0)), "unknown type 999"),
        (gguf_file(tensors=gguf_tensor(b"a", [0], 0, 0) * 2, counts=(2, 0)), "twice"),
    ],
)
def test_a_malformed_gguf_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "w.gguf").write_bytes(content)
    error = refusal(tmp_path / "w.gguf")
    assert error.code == "E-LOAD-004"
    assert words in error.message


@pytest.mark.parametrize("name", ["w.safetensors", "w.npz", "w.npy", "w.gguf"])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str) -> None:
    path = make(tmp_path / name)
    content = path.read_bytes()
    padding = 64 if path.suffix == ".gguf" else 1
    for length in (0, 10, len(content) // 2, len(content) - padding):
        path.write_bytes(content[:length])
        assert refusal(path, "blocks" if padding > 1 else "brain").code in (
            "E-LOAD-004",
            "E-TENSORS-001",
        )


_FILES: dict[str, bytes] = {}


@given(st.sampled_from(["w.npz", "w.npy", "w.gguf"]), st.data())
def test_fuzz_only_errors_of_ours_come_out(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / f"fuzz-{name}"
    if name not in _FILES:
        _FILES[name] = make(path).read_bytes()
    content = bytearray(_FILES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(600, len(content) - 1)))
        at = len(content) - 1 - at if data.draw(st.booleans()) else at
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(content)
    try:
        source = open_source(path)
        for key in source.keys():  # noqa: SIM118
            dtype, _ = source.describe(key)
            source.read(key, DType(dtype) if dtype in list(DType) else DType.F64)
    except SexpgpuError as error:
        error.render()
