"""What `inspect` finds in exports, checkpoints and files, whole or damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from sexpgpu.export.inspection import Tensor, inspect
from sexpgpu.schemas.errors import SexpgpuError
from support.exports import MODELS, checkpoint, export
from support.torch_files import write_arrays


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint `run` and an export `export` of a model with a body."""
    path = tmp_path_factory.mktemp("inspect")
    export(MODELS["scan"], path)
    return path


def refused(where: object, code: str) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        inspect(str(where))
    assert caught.value.code == code
    return caught.value


# What is found


def test_an_export(directory: Path) -> None:
    found = inspect(str(directory / "export"))
    assert (found.kind, found.place) == ("export", str(directory / "export"))
    assert found.inputs == [Tensor("inputs", "f32", ["batch", 12, 16])]
    assert found.outputs == [Tensor("output", "f32", ["batch", 12, 8])]
    assert found.weights[0] == Tensor("w.w", "f32", [16, 16])
    assert found.facts["checkpoint"] == str(directory / "run" / "step-00000000")
    assert (found.facts["precision"], found.facts["stored as"]) == ("f32", "5 F32")
    assert (found.facts["opset"], found.facts["ir version"]) == ("ai.onnx 18", 8)
    assert set(found.files) == {"model.json", "model.onnx", "params.safetensors"}
    # The operators are ONNX's, those of the body of Scan among them.
    assert found.operators["Scan"] == 1
    assert found.operators["Tanh"] == 1


def test_a_model(directory: Path) -> None:
    found = inspect(str(directory / "export" / "model.json"))
    assert found.kind == "model.json"
    assert found.operators["scan"] == 1
    assert found.operators["tanh"] == 1, "the operations of bodies count as well"
    assert len(found.weights) == 5


def test_an_onnx_file(directory: Path) -> None:
    path = directory / "export" / "model.onnx"
    found = inspect(str(path))
    assert found.kind == "onnx"
    assert found.facts["external data"] == ["params.safetensors"]
    assert found.facts["sexpgpu.precision"] == "f32"
    assert found.facts["producer"] == "sexpgpu"
    assert found.inputs == [Tensor("inputs", "f32", ["batch", 12, 16])]
    assert found.files == {"model.onnx": path.stat().st_size}
    assert Tensor("w.w", "f32", [16, 16]) in found.weights


def test_an_onnx_file_of_another_program(tmp_path: Path) -> None:
    helper = onnx.helper
    sequence = helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node("Frobnicate", ["x", "w"], ["s"], domain="com.example")],
        "other",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, [None, "time", 3]),
            helper.make_tensor_value_info("w", onnx.TensorProto.INT8, [2]),
        ],
        [sequence],
        [onnx.numpy_helper.from_array(np.zeros(2, np.int8), "w")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 2)]
    )
    onnx.save(model, str(tmp_path / "other.onnx"))
    found = inspect(str(tmp_path / "other.onnx"))
    assert found.inputs == [Tensor("x", "f16", ["?", "time", 3])]
    assert found.outputs == [Tensor("s", "sequence", [])]
    assert found.weights == [Tensor("w", "i8", [2])]
    assert found.operators == {"com.example.Frobnicate": 1}
    assert found.facts["opset"] == "ai.onnx 17, com.example 2"


def test_a_checkpoint_or_a_location_for_its_newest(directory: Path) -> None:
    for where in (directory / "run", directory / "run" / "step-00000000"):
        found = inspect(str(where))
        assert found.kind == "checkpoint"
        assert found.facts["step"] == 0
        assert found.facts["averages"] is False
        assert set(found.files) == {"model.json", "params.safetensors"}
        assert found.inputs == [Tensor("inputs", "f32", ["batch", 12, 16])]
        assert len(found.weights) == 5


def test_weights(tmp_path: Path) -> None:
    save_file({"a": np.zeros((2, 3), np.float32)}, tmp_path / "w.safetensors")
    np.savez(tmp_path / "w.npz", b=np.zeros(4, np.int64))
    np.save(tmp_path / "w.npy", np.zeros((5, 1)))
    assert inspect(str(tmp_path / "w.safetensors")).weights == [Tensor("a", "f32", [2, 3])]
    assert inspect(str(tmp_path / "w.npz")).weights == [Tensor("b", "i64", [4])]
    (array,) = inspect(str(tmp_path / "w.npy")).weights
    assert (array.dtype, array.shape, array.elements) == ("f64", [5, 1], 5)


def test_weights_of_others(tmp_path: Path) -> None:
    write_arrays(tmp_path / "w.pt", {"layer.w": np.zeros((2, 3), np.float32)})
    found = inspect(str(tmp_path / "w.pt"))
    assert found.weights == [Tensor("layer.w", "f32", [2, 3])]


# What is not


def test_nothing(tmp_path: Path) -> None:
    assert "there is nothing at" in refused(tmp_path / "none", "E-FILE-001").message
    refused("", "E-LOC-001")


def test_what_is_of_no_known_kind(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    error = refused(tmp_path / "notes.txt", "E-INSPECT-001")
    assert "model.json, .onnx, .safetensors" in (error.expected or "")
    error = refused(tmp_path, "E-INSPECT-001")
    assert "a checkpoint" in (error.expected or "")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.json"
    path.write_text("{}")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    error = refused(path, "E-FILE-001")
    assert (error.message, error.place) == ("cannot read the file: Permission denied", str(path))


def test_an_empty_onnx_file(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    refused(tmp_path / "model.onnx", "E-ONNX-002")
    (tmp_path / "model.onnx").write_bytes(b"\xff" * 50)
    refused(tmp_path / "model.onnx", "E-ONNX-002")


def test_a_file_that_is_no_longer_small(tmp_path: Path) -> None:
    with (tmp_path / "model.onnx").open("wb") as file:
        file.truncate(2**31)
    refused(tmp_path / "model.onnx", "E-ONNX-002")


def test_an_export_of_which_a_part_is_damaged(directory: Path, tmp_path: Path) -> None:
    for name in ("model.json", "model.onnx", "params.safetensors"):
        (tmp_path / name).write_bytes((directory / "export" / name).read_bytes())
    (tmp_path / "params.safetensors").write_bytes(b"\x10")
    refused(tmp_path, "E-TENSORS-001")
    (tmp_path / "params.safetensors").unlink()
    assert "stored as" not in inspect(str(tmp_path)).facts
    (tmp_path / "model.onnx").unlink()
    assert inspect(str(tmp_path)).operators["scan"] == 1
    (tmp_path / "model.json").write_text("{")
    refused(tmp_path, "E-JSON-001")


# Damaged bytes give an error or something to show, and never anything else


@settings(max_examples=50)
@given(st.data())
def test_mutated_files(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["model.json", "model.onnx", "params.safetensors"]))
    content = bytearray((directory / "export" / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert", "repeat"])):
            case "set":
                content[place] = data.draw(st.integers(0, 255))
            case "cut":
                del content[place : place + data.draw(st.integers(1, 200))]
            case "insert":
                content[place:place] = data.draw(st.binary(max_size=9))
            case "repeat":
                content[place:place] = content[place : place + 50]
        if not content:
            break
    path = tmp_path_factory.mktemp("mutated") / name
    path.write_bytes(content)
    try:
        found = inspect(str(path))
    except SexpgpuError:
        return
    json.dumps([tensor.shape for tensor in (*found.inputs, *found.outputs, *found.weights)])


def test_a_checkpoint_without_a_model_is_shown(tmp_path: Path) -> None:
    location = Path(checkpoint(MODELS["no weights"], tmp_path)) / "step-00000000"
    assert inspect(str(location)).weights == []
