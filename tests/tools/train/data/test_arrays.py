"""Arrays as records: their dtypes and shapes, where they are read, and what is refused."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from sexpgpu.export.storage import numpy_source
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data import arrays as arrays_module
from sexpgpu.tools.train.data import files
from sexpgpu.tools.train.data.dataset import portion
from support.data import data_error, dataset_of


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


X = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
Y = np.arange(10, dtype=np.int64)


@pytest.mark.parametrize("form", ["npz", "compressed", "safetensors"])
def test_records_lie_along_axis_0(form: str) -> None:
    name = "a.safetensors" if form == "safetensors" else "a.npz"
    if form == "safetensors":
        save_file({"x": X, "y": Y}, name)
    else:
        (np.savez if form == "npz" else np.savez_compressed)(name, x=X, y=Y)
    data = dataset_of(f'(arrays "{name}")')
    assert (data.count, data.tokens) == (10, None)
    assert data.evaluation() == range(10)
    batch = data.batch(np.array([3, 9, 3]))
    assert {name: array.dtype for name, array in batch.items()} == {
        "x": np.float32,
        "y": np.int64,
    }
    assert np.array_equal(batch["x"], X[[3, 9, 3]])
    assert batch["y"].tolist() == [3, 9, 3]
    batch["x"][:] = 0
    assert np.array_equal(data.batch([3])["x"], X[[3]])


@pytest.mark.parametrize("order", ["C", "F"])
def test_one_array_of_npy(order: str) -> None:
    np.save("a.npy", np.asarray(X, order=order))
    data = dataset_of('(arrays "a.npy")')
    assert np.array_equal(data.batch([0, 7])["array"], X[[0, 7]])


def test_large_members_of_npz_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_source, "_MAPPED_FROM", 1)
    np.savez("a.npz", x=X, y=Y, none=np.zeros((10, 0), np.float32))
    source = numpy_source.NpzSource(Path("a.npz"))
    assert isinstance(source.stored("x"), np.memmap)
    assert source.memory("x") == 0
    data = dataset_of('(arrays "a.npz")')
    batch = data.batch([9, 0])
    assert np.array_equal(batch["x"], X[[9, 0]])
    assert batch["y"].tolist() == [9, 0]
    assert batch["none"].shape == (2, 0)
    np.savez_compressed("b.npz", x=X)
    assert numpy_source.NpzSource(Path("b.npz")).memory("x") == X.nbytes


@settings(max_examples=25)
@given(st.integers(0, 10**15), st.integers(0, 1000), st.integers(0, 1000))
def test_parts_with_an_end_in_common_are_the_whole(total: int, a: int, b: int) -> None:
    first, second = sorted((a / 1000, b / 1000))
    parts = [portion(total, split) for split in ((0.0, first), (first, second), (second, 1.0))]
    assert [parts[0].start, parts[1].start, parts[2].start] == [0, parts[0].stop, parts[1].stop]
    assert parts[2].stop == total
    assert parts[0].stop == total * min(a, b) // 1000
    assert portion(total, None) == range(total)


def test_a_split_is_by_position() -> None:
    np.save("a.npy", Y)
    first = dataset_of('(arrays "a.npy" :split (list 0 0.75))')
    rest = dataset_of('(arrays "a.npy" :split (list 0.75 1))')
    assert first.batch(range(first.count))["array"].tolist() == list(range(7))
    assert rest.batch(range(rest.count))["array"].tolist() == [7, 8, 9]
    error = data_error('(arrays "a.npy" :split (list 0.5 0.55))', "E-DATA-007")
    assert error.came == "10 records, of which (list 0.5 0.55) are taken"


@pytest.mark.parametrize(
    ("stored", "declared", "values"),
    [
        (np.uint8, "i32", [0, 255]),
        (np.uint8, "f32", [0, 255]),
        (np.uint8, "bf16", [0, 255]),
        (np.int64, "i32", [-(2**31), 2**31 - 1]),
        (np.uint64, "i64", [0, 2**63 - 1]),
        (np.int32, "f64", [-(2**31), 2**31 - 1]),
        (np.float16, "f32", [0.5, -65504]),
        (ml_dtypes.bfloat16, "f32", [0.5, 3.0]),
        (np.dtype(">f4"), "f32", [0.5, 3.0]),
        (np.dtype(">i4"), "i64", [-5, 3]),
        (np.float32, "f64", [0.1, 3.0]),
        (np.bool_, "bool", [False, True]),
    ],
)
def test_a_field_of_a_dtype_that_holds_the_values(
    stored: object, declared: str, values: list[float]
) -> None:
    array = np.array(values, stored)
    np.savez("a.npz", x=array)
    data = dataset_of(f'(arrays "a.npz" :fields (list :x {declared}))')
    found = data.batch([0, 1])["x"]
    assert found.dtype == data.fields["x"].dtype.numpy
    assert np.array_equal(found.astype(np.float64), array.astype(np.float64))


@pytest.mark.parametrize(
    ("stored", "declared", "said"),
    [
        (np.float64, "f32", "`(cast x f32)`"),
        (np.int32, "f32", "declare the field as i32"),
        (np.uint16, "bf16", "declare the field as i32"),
        (np.float32, "i32", "declare the field as f32"),
        (np.uint8, "bool", "declare the field as i32"),
        (np.bool_, "i32", "declare the field as bool"),
    ],
)
def test_a_field_of_a_dtype_that_does_not(stored: type, declared: str, said: str) -> None:
    np.savez("a.npz", x=np.zeros(4, stored))
    error = data_error(f'(arrays "a.npz" :fields (list :x {declared}))', "E-DATA-004")
    assert error.help is not None
    assert said in error.help


def test_whole_numbers_that_do_not_fit() -> None:
    np.savez("a.npz", y=np.array([1, 2, 2**31, 3]))
    error = data_error('(arrays "a.npz" :fields (list :y i32))', "E-DATA-005")
    assert (error.place, error.came) == ("a.npz", "2147483648 in record 2 (from 0)")
    assert error.expected == "-2147483648 to 2147483647"
    # What :split leaves out is not looked at.
    data = dataset_of('(arrays "a.npz" :fields (list :y i32) :split (list 0.75 1))')
    assert data.batch([0])["y"].tolist() == [3]


def test_a_boolean_that_is_neither_0_nor_1() -> None:
    np.savez("a.npz", x=np.array([0, 1, 7], np.uint8).view(np.bool_))
    error = data_error('(arrays "a.npz")', "E-DATA-005")
    assert error.came == "7 in record 2 (from 0)"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_numbers_that_are_not_finite(value: float, dtype: type) -> None:
    x = X.astype(dtype)
    x[4, 1, 2] = value
    np.savez("a.npz", x=x)
    error = data_error('(arrays "a.npz" :split (list 0.2 1))', "E-DATA-006")
    assert error.place == "a.npz"
    assert "`x`" in error.message
    assert error.came == f"{np.float32(value)} in record 4 (from 0) at [1, 2]"


def test_large_arrays_are_checked_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays_module, "_CHECKED_UP_TO", 0)
    x = X.copy()
    x[4] = np.nan
    np.save("a.npy", x)
    data = dataset_of('(arrays "a.npy")')
    data.batch([3, 5])
    with pytest.raises(SexpgpuError) as caught:
        data.batch([3, 4])
    assert caught.value.code == "E-DATA-006"


def test_arrays_of_other_lengths() -> None:
    np.savez("a.npz", x=X, y=Y[:9], z=Y)
    error = data_error('(arrays "a.npz")', "E-DATA-004")
    assert error.came == "x: 10, y: 9, z: 10"
    assert dataset_of('(arrays "a.npz" :fields (list :z i64 :x (list f32 2 3)))').count == 10


def test_an_array_that_is_missing() -> None:
    np.savez("a.npz", pixels=X)
    error = data_error('(arrays "a.npz" :fields (list :pixel f32))', "E-DATA-004")
    assert error.help == "did you mean `:pixels`?"
    np.save("a.npy", X)
    error = data_error('(arrays "a.npy" :fields (list :x f32))', "E-DATA-004")
    assert error.help == "the array of a .npy file is called `array`"


@pytest.mark.parametrize("shape", [(10, 6), (10, 3, 2), (10,), ()])
def test_an_array_of_another_shape(shape: tuple[int, ...]) -> None:
    np.savez("a.npz", x=np.zeros(shape, np.float32))
    error = data_error('(arrays "a.npz" :fields (list :x (list f32 2 3)))', "E-DATA-004")
    assert error.expected == "[batch, 2, 3]"


def test_files_that_are_missing_empty_or_of_another_kind() -> None:
    fields = ":fields (list :x f32)"
    assert data_error(f'(arrays "a.npz" {fields})', "E-DATA-002").message == "`a.npz` is missing"
    Path("a.npz").write_bytes(b"")
    data_error(f'(arrays "a.npz" {fields})', "E-DATA-007")
    Path("a.txt").write_bytes(b"text")
    assert "`.txt` is unknown" in data_error(f'(arrays "a.txt" {fields})', "E-DATA-003").message
    np.savez("a.npz", x=X[:0])
    data_error('(arrays "a.npz")', "E-DATA-007")


@pytest.mark.parametrize("name", ["a.npz", "c.npz", "a.npy", "a.safetensors"])
def test_files_that_are_cut_short(name: str) -> None:
    np.savez("a.npz", x=X)
    np.savez_compressed("c.npz", x=X)
    np.save("a.npy", X)
    save_file({"x": X}, "a.safetensors")
    whole = Path(name).read_bytes()
    for length in range(1, len(whole), 61):
        Path(name).write_bytes(whole[:length])
        key = "array" if name == "a.npy" else "x"
        data_error(f'(arrays "{name}" :fields (list :{key} (list f32 2 3)))', "E-DATA-003")


def test_a_member_whose_bytes_changed() -> None:
    np.savez("a.npz", x=X)
    content = bytearray(Path("a.npz").read_bytes())
    content[300] ^= 1
    Path("a.npz").write_bytes(content)
    assert (
        "damaged"
        in data_error('(arrays "a.npz" :fields (list :x (list f32 2 3)))', "E-DATA-003").message
    )


def test_a_file_that_is_cut_short_while_it_is_read() -> None:
    np.save("a.npy", np.zeros((10_000, 8), np.float32))
    data = dataset_of('(arrays "a.npy")')
    os.truncate("a.npy", 1000)
    with pytest.raises(SexpgpuError) as caught:
        data.batch([9_999])
    assert caught.value.code == "E-DATA-003"


def test_a_compressed_file_that_memory_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "sysconf", lambda name: 64)  # 64 pages of 64 bytes
    np.savez_compressed("a.npz", x=np.zeros((10_000, 8), np.float32))
    error = data_error('(arrays "a.npz" :fields (list :x (list f32 8)))', "E-DATA-011")
    assert error.help is not None
    assert "numpy.savez" in error.help


def test_a_header_that_claims_more_than_there_is() -> None:
    np.savez("a.npz", x=np.zeros(10, np.float32))
    with zipfile.ZipFile("a.npz") as archive:
        member = archive.read("x.npy")
    claims = member.replace(b"(10,), }   ", b"(10000,), }")
    assert claims != member
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", claims)
    error = data_error('(arrays "a.npz" :fields (list :x f32))', "E-DATA-003")
    assert "its header claims float32 [10000]" in error.message


def test_fingerprints_are_of_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprint(x: np.ndarray, name: str = "a.npy") -> str:
        np.save(name, x)
        return dataset_of(f'(arrays "{name}")').fingerprint()

    changed = X.copy()
    changed[5] += 1
    assert fingerprint(X) == fingerprint(X, "b.npy")
    assert fingerprint(X) != fingerprint(changed)
    monkeypatch.setattr(files, "_HASHED_WHOLE", 100)
    monkeypatch.setattr(files, "_SAMPLE", 50)
    assert fingerprint(X) == fingerprint(X, "b.npy")
    assert fingerprint(X) != fingerprint(changed)
    assert fingerprint(X) != fingerprint(X[:9])


def test_a_loader_without_data() -> None:
    error = data_error("(fields :x f32 :y i32)", "E-DATA-009")
    assert error.came == "(fields :x :y)"
