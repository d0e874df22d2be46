"""What can be hosted, and how the flags shape it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from sexpgpu.export.onnx.session import Session
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import load
from sexpgpu.serve.hosted import Hosted, Limits, Shaping, open_operand
from support.exports import checkpoint, export
from support.programs import GPT
from support.serving import write_onnx


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint `run` and its exports."""
    folder = tmp_path_factory.mktemp("gpt")
    checkpoint(GPT, folder)
    return folder


def test_a_checkpoint_an_export_and_a_file_give_the_same(run: Path) -> None:
    export(GPT, run, "plain")
    exported = Session(run / "plain" / "model.onnx")
    with (
        load(str(run / "run"), trained=True) as first,
        load(str(run / "plain")) as second,
        load(str(run / "plain" / "model.onnx")) as third,
    ):
        name, spec = first.inputs[0].name, first.inputs[0]
        x = np.random.default_rng(0).integers(0, 4, (5, *spec.shape[1:])).astype(np.int32)
        answers = [model(**{name: x}) for model in (first, second, third)]
        assert answers[0].tobytes() == answers[1].tobytes()
        np.testing.assert_allclose(answers[0], answers[2], rtol=1e-5, atol=1e-6)
        want = np.concatenate(
            [exported.run({name: x[i : i + 1]})[first.outputs[0].name] for i in range(5)]
        )
        np.testing.assert_allclose(answers[2], want, rtol=1e-6, atol=1e-7)
        assert first.about["checkpoint"].startswith(str(run))
        assert first.about["precision"] == "f32"


def test_weights_stored_as_bf16(run: Path) -> None:
    export(GPT, run, "stored", weights="bf16")
    with load(str(run / "stored")) as model, load(str(run / "stored" / "model.onnx")) as file:
        x = np.zeros((1, *model.inputs[0].shape[1:]), np.int32)
        np.testing.assert_allclose(model(x), file(x), rtol=1e-5, atol=1e-6)


def test_at_output_and_precision_shape_the_model(run: Path) -> None:
    with (
        load(str(run / "run")) as whole,
        load(str(run / "run"), at=True) as at,
        load(str(run / "run"), precision="bf16") as rounded,
    ):
        window = whole.inputs[0].shape[1]
        x = np.random.default_rng(1).integers(0, 4, (3, window)).astype(np.int32)
        positions = np.array([0, 1, window - 1], np.int32)
        assert [spec.name for spec in at.inputs] == [whole.inputs[0].name, "at"]
        full, rows = whole(x), at(x, at=positions)
        assert rows.shape == (3, 1, full.shape[2])
        np.testing.assert_allclose(rows[:, 0], full[np.arange(3), positions], rtol=1e-5, atol=1e-6)
        with pytest.raises(SexpgpuError) as caught:
            at(x, at=np.array([0, window, 1], np.int32))
        assert caught.value.came == f"record 1: `at`: {window} is outside 0 to {window - 1}"
        assert np.abs(rounded(x) - full).max() > 0
        assert rounded.about["precision"] == "bf16"
        name = whole.outputs[0].name
    with load(str(run / "run"), output=name) as chosen:
        assert chosen(x).tobytes() == full.tobytes()
    with pytest.raises(SexpgpuError) as caught:
        load(str(run / "run"), output=name + "x")
    assert caught.value.code == "E-EXPORT-002"


def test_at_needs_a_second_axis_of_one_length(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "m.onnx", "float[N,3] x, float[N] z", "float[N] y", "y = Neg (z)")
    with pytest.raises(SexpgpuError) as caught:
        load(str(path), at=True)
    assert caught.value.code == "E-EXPORT-003"


def test_the_trained_weights_or_their_averages(tmp_path: Path) -> None:
    location = checkpoint(GPT, tmp_path)
    with load(location) as model, load(location, trained=True) as trained:
        x = np.zeros((1, *model.inputs[0].shape[1:]), np.int32)
        assert model(x).shape == trained(x).shape


def test_a_dimension_is_fixed_of_an_onnx_file_alone(run: Path) -> None:
    with pytest.raises(SexpgpuError) as caught:
        load(str(run / "run"), dimensions={"length": 4})
    assert caught.value.code == "E-USAGE-001"


def test_an_output_that_is_left_out_is_not_computed(tmp_path: Path) -> None:
    location = checkpoint(TWO, tmp_path)
    both = open_operand(location, Shaping(trained=True))
    one = open_operand(location, Shaping(outputs=("small",), trained=True))
    assert [spec.name for spec in both.outputs] == ["small", "large"]
    assert [spec.name for spec in one.outputs] == ["small"]
    assert _operators(both).count("MatMul") + _operators(both).count("Gemm") == 2
    assert _operators(one).count("MatMul") + _operators(one).count("Gemm") == 1
    assert _weights(both) > _weights(one) > 0


def test_indices_have_the_limits_of_their_table(run: Path) -> None:
    hosted = open_operand(str(run / "run"), Shaping(at=True))
    rows = hosted.limits[hosted.inputs[0].name]
    assert rows.low == -rows.high
    assert hosted.limits["at"] == Limits(0, hosted.inputs[0].shape[1])


COLUMNS = """
(def record (fields :n (list i32 3)))
(defmodel net () (parts few (embedding 5 3) many (embedding 100 3))
  (apply (n)
    (let (last (take n 2 :axis 1))
      (+ (few (take n 0 :axis 1)) (many (squeeze (slice n :axis 1 :from 1 :to 2) :axis 1))
         (few (where (< last 0) 0 last))))))
(def model (net))"""


def test_columns_of_one_input_are_indices_of_different_tables(tmp_path: Path) -> None:
    checkpoint(COLUMNS, tmp_path)
    with load(str(tmp_path / "run"), trained=True) as model:
        (spec,) = model.inputs
        assert model(np.array([[4, 99, -100]], np.int32)).shape == (1, 3)
        for bad in ([[5, 0, 0]], [[0, 100, 0]]):
            with pytest.raises(SexpgpuError) as caught:
                model(np.array(bad, np.int32))
            assert f"`{spec.name}`: {max(*bad[0])} is outside 0 to" in str(caught.value.came)


def test_a_model_whose_records_meet_names_the_operation_and_its_line(tmp_path: Path) -> None:
    hosted = open_operand(checkpoint(MIXED, tmp_path), Shaping(trained=True))
    assert "`softmax` at " in hosted.obstacle
    assert "program.sx:3:" in hosted.obstacle
    with load(str(tmp_path / "run"), trained=True) as model:
        assert model.about["batch"]["limit"] == 1
        assert model.about["batch"]["why_one"] == hosted.obstacle


def test_an_export_without_a_weight_is_refused(run: Path) -> None:
    export(GPT, run, "damaged")
    other = export(TWO, run / "other")
    weights = (other.directory / "params.safetensors").read_bytes()
    (run / "damaged" / "params.safetensors").write_bytes(weights)
    with pytest.raises(SexpgpuError) as caught:
        load(str(run / "damaged"))
    assert caught.value.code == "E-CKPT-003"


TWO = """
(def record (fields :x (list f32 4)))
(defmodel net () (parts a (linear 4 2) b (linear 4 9))
  (apply (x) (list :small (a x) :large (b x))))
(def model (net))
"""

MIXED = """
(def record (fields :x (list f32 4)))
(defmodel net () (parts a (linear 4 2)) (apply (x) (softmax (a x) :axis 0)))
(def model (net))
"""


def _weights(hosted: Hosted) -> int:
    """How many there are in the graph, wherever they are kept."""
    assert isinstance(hosted.model, bytes)
    return len(onnx.load_from_string(hosted.model).graph.initializer)


def _operators(hosted: Hosted) -> list[str]:
    assert isinstance(hosted.model, bytes)
    return [node.op_type for node in onnx.ModelProto.FromString(hosted.model).graph.node]
