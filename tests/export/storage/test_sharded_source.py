"""`:load` from several files: read as one, and refused where one is not there."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from sexpgpu.export.graph.types import DType
from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas.errors import SexpgpuError
from support.torch_files import write_arrays

A, B, C = (np.full((2, 3), number, np.float32) for number in range(3))
MAP = {"a": "one.safetensors", "c": "two.safetensors", "b": "one.safetensors"}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    save_file({"a": A, "b": B}, tmp_path / "one.safetensors")
    save_file({"c": C}, tmp_path / "two.safetensors")
    return write(tmp_path, MAP)


def write(folder: Path, weight_map: object) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 72}, "weight_map": weight_map}))
    return path


def refused(path: Path, key: str = "a") -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        open_source(path).read(key, DType.F32)
    return caught.value


def test_the_tensors_of_all_files(index: Path) -> None:
    source = open_source(index)
    assert source.keys() == ["a", "c", "b"]
    assert source.describe("c") == ("f32", (2, 3))
    for key, array in {"a": A, "b": B, "c": C}.items():
        np.testing.assert_array_equal(source.read(key, DType.F32, (2, 3)), array)
    assert refused(index, "d").code == "E-LOAD-002"


def test_the_files_of_a_pytorch_checkpoint(tmp_path: Path) -> None:
    write_arrays(tmp_path / "one.bin", {"a": A, "b": B})
    write_arrays(tmp_path / "two.bin", {"c": C})
    files = {key: name.replace("safetensors", "bin") for key, name in MAP.items()}
    index = write(tmp_path, files).rename(tmp_path / "pytorch_model.bin.index.json")
    source = open_source(index)
    for key, array in {"a": A, "b": B, "c": C}.items():
        np.testing.assert_array_equal(source.read(key, DType.F32, (2, 3)), array)


def test_the_sum_is_of_every_file(index: Path) -> None:
    files = [index, index.parent / "one.safetensors", index.parent / "two.safetensors"]
    own = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    text = "".join(line + "\n" for line in own)
    assert open_source(index).sha256() == hashlib.sha256(text.encode()).hexdigest()
    save_file({"c": C + 1}, files[2])
    assert open_source(index).sha256() != hashlib.sha256(text.encode()).hexdigest()


def test_a_file_that_is_missing(index: Path) -> None:
    (index.parent / "two.safetensors").unlink()
    np.testing.assert_array_equal(open_source(index).read("a", DType.F32), A)
    error = refused(index, "c")
    assert (error.code, error.place) == ("E-LOAD-001", str(index))


def test_a_file_that_cannot_be_read(index: Path) -> None:
    path = index.parent / "two.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 72\n")
    error = refused(index, "c")
    assert (error.code, error.help) == ("E-LOAD-004", "`git lfs pull` fetches it")
    path.unlink()
    os.mkfifo(path)
    assert refused(write(index.parent, {**MAP, "d": "x.bin"}), "c").code == "E-LOAD-004"


def test_a_tensor_that_its_file_does_not_hold(index: Path) -> None:
    path = write(index.parent, {**MAP, "d": "two.safetensors"})
    error = refused(path, "d")
    assert error.code == "E-LOAD-004"
    assert "two.safetensors does not hold its `d`" in error.message


@pytest.mark.parametrize(
    "name",
    ["../one.safetensors", "/etc/one.safetensors", "a/one.safetensors", "one.exe", "", "..", "x\0"],
)
def test_files_elsewhere_are_not_opened(index: Path, name: str) -> None:
    error = refused(write(index.parent, {"a": name}))
    assert error.code == "E-LOAD-004"
    assert "no file of weights beside it" in error.message


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}', "\xff"]
)
def test_a_malformed_index(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(text.encode("latin-1"))
    assert refused(path).code == "E-LOAD-004"


def test_an_index_that_is_too_large(index: Path) -> None:
    many = write(index.parent, {str(i): f"{i}.safetensors" for i in range(10_001)})
    assert "more than 10,000 files" in refused(many).message
    with index.open("ab") as file:
        file.truncate((64 << 20) + 1)
    assert "larger than 64 MiB" in refused(index).message
