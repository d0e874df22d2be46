"""Where a model is found: directories, files, and what is neither."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.source import open_model
from support.torch_files import write_arrays


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of next to nothing."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    save_file({"a": np.zeros(2, np.float32)}, folder / "model.safetensors")
    return folder


def raised(path: Path) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        open_model(path)
    return caught.value


def gguf(path: Path, architecture: str = "llama", **values: int) -> Path:
    """A file with metadata and without tensors."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    pairs = [text("general.architecture") + struct.pack("<I", 8) + text(architecture)]
    for key, value in values.items():
        pairs.append(text(key.replace("__", ".")) + struct.pack("<IQ", 10, value))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs))
    return path


@pytest.mark.parametrize("name", ["", "config.json", "model.safetensors"])
def test_a_directory_is_named_or_a_file_in_it(folder: Path, name: str) -> None:
    found = open_model(folder / name)
    assert (found.name, found.layout) == ("small", "transformers")
    assert found.weights.path == folder / "model.safetensors"
    assert found.configuration.word("model_type", "") == "llama"


def test_a_snapshot_of_the_cache_has_the_name_of_its_repository(tmp_path: Path) -> None:
    """The files in it are links to others, which have no endings."""
    hub = tmp_path / "models--some-one--a-model"
    snapshot = hub / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (hub / "blobs").mkdir()
    (hub / "blobs" / "1").write_text("{}")
    save_file({"a": np.zeros(2, np.float32)}, hub / "blobs" / "2")
    (snapshot / "config.json").symlink_to(hub / "blobs" / "1")
    (snapshot / "model.safetensors").symlink_to(hub / "blobs" / "2")
    assert open_model(snapshot).name == "some-one/a-model"


def test_a_directory_with_one_gguf_file(tmp_path: Path) -> None:
    gguf(tmp_path / "one.gguf")
    assert open_model(tmp_path).weights.path == tmp_path / "one.gguf"
    assert open_model(tmp_path / "one.gguf").is_gguf
    gguf(tmp_path / "two.gguf")
    error = raised(tmp_path)
    assert (error.code, error.came) == ("E-IMPORT-001", "one.gguf, two.gguf")


def test_a_gguf_file_beside_the_configuration_of_another(tmp_path: Path) -> None:
    gguf(tmp_path / "one.gguf")
    (tmp_path / "config.json").write_text("{}")
    assert open_model(tmp_path).is_gguf


def test_where_the_weights_may_be_is_said(folder: Path, tmp_path: Path) -> None:
    """As sentence-transformers once laid them out, and under another name."""
    folder.rename(tmp_path / "0_Transformer")
    (tmp_path / "modules.json").write_text("[]")
    error = raised(tmp_path)
    assert (error.code, error.came) == ("E-IMPORT-001", "0_Transformer, modules.json")
    assert error.help == f"name the directory that holds them: {tmp_path}/0_Transformer"
    other = tmp_path / "0_Transformer" / "model.fp16.safetensors"
    (tmp_path / "0_Transformer" / "model.safetensors").rename(other)
    error = raised(tmp_path / "0_Transformer")
    assert error.help == f"name the file, if these are the weights: {other}"
    assert open_model(other).weights.path == other


def test_paths_that_name_nothing(folder: Path, tmp_path: Path) -> None:
    assert raised(Path("a" * 5000)).code == "E-IMPORT-001"
    odd = tmp_path / "od\udc80d"
    folder.rename(odd)
    error = raised(odd)
    assert (error.code, error.help) == ("E-IMPORT-001", "rename what is in it")


def test_a_configuration_that_is_no_file(folder: Path) -> None:
    """One that would never end is not read."""
    path = folder / "config.json"
    path.unlink()
    os.mkfifo(path)
    assert (raised(folder).code, raised(folder).came) == ("E-IMPORT-003", "it is not a file")


def test_what_is_no_model(folder: Path, tmp_path: Path) -> None:
    assert raised(tmp_path / "none").code == "E-IMPORT-001"
    assert raised(tmp_path).code == "E-IMPORT-001"
    (folder / "config.json").unlink()
    error = raised(folder)
    assert (error.code, error.message) == (
        "E-IMPORT-001",
        "there is no config.json beside the weights",
    )
    (folder / "model.safetensors").unlink()
    assert raised(folder).came == "an empty directory"
    (folder / "model.txt").write_text("x")
    assert raised(folder / "model.txt").code == "E-LOAD-004"


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[" * 100_000, '"x"', b"\xff\xfe", "{}" + " " * (4 << 20)], ids=repr
)  # fmt: skip
def test_a_configuration_that_cannot_be_read(folder: Path, text: str | bytes) -> None:
    path = folder / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    error = raised(folder)
    assert (error.code, error.place) == ("E-IMPORT-003", str(path))


def test_the_index_of_several_files(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors"}}))
    assert open_model(folder).weights.describe("a") == ("f32", (2,))
    (folder / "one.safetensors").unlink()
    index.unlink()
    write_arrays(folder / "one.bin", {"a": np.zeros(2, np.float32)})
    older = folder / "pytorch_model.bin.index.json"
    older.write_text(json.dumps({"weight_map": {"a": "one.bin"}}))
    assert open_model(folder).weights.describe("a") == ("f32", (2,))


@pytest.mark.parametrize(
    ("architecture", "values", "code"),
    [
        ("falcon", {}, "E-IMPORT-002"),
        ("llama", {"llama__expert_count": 8}, "E-IMPORT-004"),
        ("llama", {"split__count": 3}, "E-IMPORT-004"),
        (
            "llama",
            {
                "llama__embedding_length": 64,
                "llama__attention__head_count": 4,
                "llama__rope__dimension_count": 8,
            },
            "E-IMPORT-004",
        ),
        ("llama", {"llama__embedding_length": 64, "llama__rope__dimension_count": 8},
         "E-IMPORT-003"),
    ],
    ids=str,
)  # fmt: skip
def test_gguf_files_that_are_refused(
    tmp_path: Path, architecture: str, values: dict[str, int], code: str
) -> None:
    assert raised(gguf(tmp_path / "a.gguf", architecture, **values)).code == code
