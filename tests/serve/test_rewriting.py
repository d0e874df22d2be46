"""Files changed for serving: outputs left out, products rounded, positions chosen, axes moved."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from support.foreign import alone, cpu, opened, refused, save


def test_a_batch_that_is_not_the_first_axis_is_moved_there(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx",
        "float[batch,4] x, float[2,batch,4] state",
        "float[batch,4] y, float[2,batch,4] next",
        """
        zero = Constant <value_ints = [0]> ()
        sum = ReduceSum <keepdims = 0> (state, zero)
        y = Add (x, sum)
        next = Mul (state, x)
        """,
    )
    hosted = opened(path)
    assert hosted.layouts == {"state": (1, 2, 4), "next": (1, 2, 4)}
    # Callers see the file's own shapes.
    assert [spec.shape for spec in hosted.inputs] == [(1, 4), (2, 1, 4)]
    generator = np.random.default_rng(0)
    with cpu(path) as model:
        assert model.about["batch"]["limit"] == 8
        for _ in range(3):
            x = generator.standard_normal((1, 4)).astype(np.float32)
            state = generator.standard_normal((2, 1, 4)).astype(np.float32)
            found = list(model(x, state=state).values())
            for one, other in zip(found, alone(path, {"x": x, "state": state}), strict=True):
                assert one.tobytes() == other.tobytes()


BRANCHES = (
    "float[N,2] x, float[N,3] z",
    "float[N,2] y, float[N,3] other",
    """
    zero = Constant <value_float = 0.0> ()
    sum = ReduceSum <keepdims = 0> (x)
    up = Greater (sum, zero)
    w = Constant <value = float[2, 2] {1.5, 0.3, -0.7, 2.1}> ()
    y = If (up) <
        then_branch = a () => (float[N,2] p) { p = MatMul (x, w) },
        else_branch = b () => (float[N,2] q) { q = Neg (x) }
    >
    other = Neg (z)
    """,
)


def test_an_output_is_chosen_and_what_branches_read_stays(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", *BRANCHES)
    x = np.array([[1, 2]], np.float32)
    want = alone(path, {"x": x, "z": np.zeros((1, 3), np.float32)})[0]
    with cpu(path, output="y") as model:
        assert [spec.name for spec in model.inputs] == ["x"]
        assert model(x).tobytes() == want.tobytes()
    assert refused(path, "E-EXPORT-002", output="othr").help == "did you mean `other`?"


def test_products_in_branches_are_rounded_too(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", *BRANCHES)
    x = np.array([[1.001, 2.003]], np.float32)
    with cpu(path, output="y", precision="bf16") as model:
        rounded = model(x)

    def half(array: Array) -> Array:
        return array.astype(ml_dtypes.bfloat16).astype(np.float32)

    w = np.array([[1.5, 0.3], [-0.7, 2.1]], np.float32)
    np.testing.assert_allclose(rounded, half(x) @ half(w), rtol=1e-6)
    assert np.abs(rounded - x @ w).max() > 1e-4


def test_at_gives_one_position(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx",
        "float[N,length,2] x",
        "float[N,length,2] a, float[N,length] b",
        "a = Neg (x) axis = Constant <value_ints = [2]> () b = ReduceMax <keepdims = 0> (x, axis)",
    )
    assert (
        "has no second axis of a known length"
        in refused(path, "E-SERVE-004" if False else "E-EXPORT-003", at=True).message
    )
    x = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    with cpu(path, at=True, dimensions={"length": 4}) as model:
        assert [str(spec) for spec in model.inputs] == ["x [1, 4, 2] f32", "at [1] i32"]
        assert [str(spec) for spec in model.outputs] == ["a [1, 1, 2] f32", "b [1, 1] f32"]
        found = model(x, np.array([0, 3, 1], np.int32))
        np.testing.assert_array_equal(found["a"][:, 0], -x[[0, 1, 2], [0, 3, 1]])
        np.testing.assert_array_equal(found["b"][:, 0], x[[0, 1, 2], [0, 3, 1]].max(axis=1))
        for bad in (-1, 4):
            with pytest.raises(SexpgpuError) as caught:
                model(x[:1], np.array([bad], np.int32))
            assert caught.value.code == "E-CALL-010"
            assert "outside 0 to 3" in (caught.value.came or "")


def test_at_needs_outputs_of_one_length(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx",
        "float[N,3] x, float[N,4] z",
        "float[N,3] y, float[N,4] w",
        "y = Neg (x) w = Neg (z)",
    )
    assert refused(path, "E-EXPORT-003", at=True).came == "3, 4"
    with cpu(path, at=True, output="w") as model:
        assert model(np.ones((1, 4), np.float32), np.array([2], np.int32)).tolist() == [[-1]]


def test_operators_that_are_too_old(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", "float[N,2] x", "float[N,2] y", "y = MatMul (x, x)", opset=11)
    model = onnx.load_model(str(path))
    model.graph.initializer.append(numpy_helper.from_array(np.eye(2, dtype=np.float32), "w"))
    model.graph.node[0].input[1] = "w"
    onnx.save_model(model, str(path))
    assert refused(path, at=True).message == "--at needs operators of opset 13"
    assert "bf16 needs operators of opset 13" in refused(path, precision="bf16").message
    with cpu(path) as plain:
        assert plain(np.ones((1, 2), np.float32)).tolist() == [[1, 1]]
