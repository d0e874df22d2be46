"""An ONNX model on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sexpgpu.export.onnx.write import EMBED_LIMIT, check_embeddable, write_onnx
from sexpgpu.schemas.errors import SexpgpuError


def model(operator: str = "Mul", weight: TensorProto | None = None) -> onnx.ModelProto:
    weight = weight or numpy_helper.from_array(np.float32([1, 2, 3]), "w")
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def external(location: str = "weights.bin", offset: int = 4, length: int = 12) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_it_is_written_and_checked(tmp_path: Path) -> None:
    write_onnx(model(), tmp_path / "model.onnx")
    assert onnx.load(str(tmp_path / "model.onnx")) == model()


def test_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        write_onnx(model(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("embed", [False, True])
def test_external_data(embed: bool, tmp_path: Path) -> None:
    numbers = np.float32([7, 1, 2, 3])
    (tmp_path / "weights.bin").write_bytes(numbers.tobytes())
    write_onnx(model(weight=external()), tmp_path / "model.onnx", embed=embed)
    written = onnx.load(str(tmp_path / "model.onnx"), load_external_data=False)
    (tensor,) = written.graph.initializer
    if embed:
        assert tensor.data_location == TensorProto.DEFAULT
        assert not tensor.external_data
        assert numpy_helper.to_array(tensor).tolist() == [1, 2, 3]
    else:
        assert not tensor.raw_data


@pytest.mark.parametrize(
    "wrong",
    [
        model("Frobnicate"),
        model("MatMul"),
        model(weight=external(location="nowhere.bin")),
        model(weight=external(location="../weights.bin")),
    ],
)
def test_what_onnx_refuses(wrong: onnx.ModelProto, tmp_path: Path) -> None:
    with pytest.raises(SexpgpuError) as caught:
        write_onnx(wrong, tmp_path / "model.onnx")
    assert caught.value.code == "E-ONNX-002"
    assert caught.value.message == "ONNX's checker refuses the file"
    assert caught.value.came


def test_what_fits_into_one_file() -> None:
    check_embeddable(EMBED_LIMIT)
    with pytest.raises(SexpgpuError) as caught:
        check_embeddable(EMBED_LIMIT + 1)
    assert caught.value.code == "E-EXPORT-005"
    assert caught.value.came == f"{EMBED_LIMIT + 1:,} bytes"
    assert "--weights bf16" in (caught.value.help or "")
