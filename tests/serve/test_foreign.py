"""Any ONNX file: its batch axis, its free dimensions, and what cannot be served of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.foreign import alone, cpu, opened, refused, save


def test_the_first_axis_that_has_a_name_is_the_batch(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", "float[rows,3] x", "float[rows,3] y", "y = Neg (x)")
    hosted = opened(path)
    assert hosted.model == path
    assert hosted.obstacle == ""
    assert hosted.inputs[0].shape == (1, 3)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    with cpu(path) as model:
        assert model(x).tobytes() == alone(path, {"x": x})[0].tobytes()
        assert model.about["slug"] == "m"


def test_free_dimensions_are_fixed_by_name(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", "float[N,length,?] x", "float[N,length,?] y", "y = Relu (x)")
    error = refused(path)
    assert error.came == "length, x.2"
    assert error.help == "fix each: --dim length=N --dim x.2=N"
    hosted = opened(path, length=4, **{"x.2": 2})
    assert hosted.inputs[0].shape == (1, 4, 2)
    assert hosted.outputs[0].shape == (1, 4, 2)
    with cpu(path, dimensions={"length": 4, "x.2": 2}) as model:
        assert model(np.full((3, 4, 2), -1.0, np.float32)).sum() == 0
    assert "no free dimension `size`" in refused(path, dimensions={"size": 3}).message


def test_what_has_no_axis_of_records_runs_one_at_a_time(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx",
        "float[N,3] x, int64 k",
        "float[N,3] y",
        "f = Cast <to = 1> (k) y = Mul (x, f)",
    )
    with cpu(path) as model:
        assert model.about["batch"]["why_one"] == "`k` has no axis of records"
        assert model(np.ones((1, 3), np.float32), 3).tolist() == [[3, 3, 3]]


def test_a_fixed_batch_runs_one_at_a_time(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", "float[2,3] x", "float[2,3] y", "y = Neg (x)")
    with cpu(path) as model:
        assert model.about["batch"]["why_one"] == "the file's batch is fixed"
        assert model(np.ones((2, 3), np.float32)).shape == (2, 3)


def test_records_that_meet_are_found_by_the_probe(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx",
        "float[N,3] x",
        "float[N,3] y",
        "axis = Constant <value_ints = [0]> () m = ReduceMax (x, axis) y = Sub (x, m)",
    )
    with cpu(path) as model:
        assert model.about["batch"]["limit"] == 1
        assert model.about["batch"]["why_one"] == "in batches its bits differ"
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert not model(x).any()


@pytest.mark.parametrize(
    ("kind", "name"), [("float16", "float16"), ("string", "string"), ("uint8", "uint8")]
)
def test_dtypes_that_the_protocol_has_not(tmp_path: Path, kind: str, name: str) -> None:
    path = save(tmp_path / "m.onnx", f"{kind}[N] x", f"{kind}[N] y", "y = Identity (x)")
    error = refused(path)
    assert error.message == f"`x` is {name}, which the protocol does not have"
    assert error.expected == "tensors of f32, f64, bf16, i32, i64, bool"


def test_sequences_are_no_tensors(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx",
        "float[N] x",
        "seq(float[N]) y, float[N] z",
        "y = SequenceConstruct (x) z = Neg (x)",
    )
    assert refused(path).message == "`y` is no tensor, which the protocol does not have"
    with cpu(path, output="z") as model:
        assert model(np.ones(2, np.float32)).tolist() == [-1, -1]


def test_the_rank_must_be_known(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", "float x", "float y", "y = Neg (x)")
    model = onnx.load_model(str(path))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save_model(model, str(path))
    assert refused(path).message == "the file does not say the shape of `y`"


def test_what_is_no_onnx_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x0a\xff\xff\xff\xff")
    refused(path, "E-ONNX-002")
    path.write_bytes(b"")
    assert refused(path, "E-ONNX-002").message == "the file holds no ONNX graph"
    good = save(tmp_path / "good.onnx", "float[N] x", "float[N] y", "y = NoSuchOperator (x)")
    refused(good, "E-VERIFY-002")


def test_weights_beside_the_file_and_inside_as_inputs(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 300]),
            # Files of old list their weights among the inputs.
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [300, 2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=3)
    path = tmp_path / "m.onnx"
    onnx.save_model(
        model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0
    )
    assert (tmp_path / "w.bin").stat().st_size == weight.nbytes
    x = np.ones((2, 300), np.float32)
    with cpu(path) as plain, cpu(path, precision="bf16") as rounded:
        assert [spec.name for spec in plain.inputs] == ["x"]
        assert plain(x)[:1].tobytes() == alone(path, {"x": x[:1]})[0].tobytes()
        np.testing.assert_allclose(rounded(x), plain(x), atol=0.5)
        assert rounded(x).tobytes() != plain(x).tobytes()


def test_weights_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(8))
    folder = tmp_path / "inside"
    folder.mkdir()
    for location in ("../secret", str(tmp_path / "secret")):
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
            [tensor],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        (folder / "m.onnx").write_bytes(model.SerializeToString())
        refused(folder / "m.onnx", "E-VERIFY-002")
        refused(folder / "m.onnx", "E-VERIFY-002", precision="bf16", at=False)


def test_tails_of_vectors_make_a_file_doubtful(tmp_path: Path) -> None:
    quiet = save(tmp_path / "a.onnx", "float[N] x", "float[N] y", "y = Tanh (x)")
    logs = save(tmp_path / "b.onnx", "float[N] x", "float[N] y", "y = Log (x)")
    wide = save(
        tmp_path / "c.onnx",
        "float[N] x",
        "float[N] y",
        "d = Cast <to = 11> (x) e = Exp (d) y = Cast <to = 1> (e)",
    )
    assert [opened(path).doubtful for path in (quiet, logs, wide)] == [False, True, True]
