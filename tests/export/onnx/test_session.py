"""Running ONNX files with arrays of every dtype."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import TensorProto, helper

from sexpgpu.export.graph.types import DType
from sexpgpu.export.onnx.lowering import ONNX_DTYPES
from sexpgpu.export.onnx.session import Session
from sexpgpu.schemas.errors import SexpgpuError
from support.arrays import DTYPES, SEEDS, assert_same, random_array, shapes


def identity(*dtypes: DType, shape: tuple[int, ...] | None = None) -> bytes:
    """A model that gives its inputs back."""
    names = [str(i) for i in range(len(dtypes))]
    kinds = [ONNX_DTYPES[dtype] for dtype in dtypes]
    graph = helper.make_graph(
        [helper.make_node("Identity", [f"x{n}"], [f"y{n}"]) for n in names],
        "identity",
        [
            helper.make_tensor_value_info(f"x{n}", k, shape)
            for n, k in zip(names, kinds, strict=True)
        ],
        [
            helper.make_tensor_value_info(f"y{n}", k, shape)
            for n, k in zip(names, kinds, strict=True)
        ],
    )
    opset = helper.make_opsetid("", 18)
    model: bytes = helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()
    return model


SESSIONS = {dtype: Session(identity(dtype)) for dtype in DType}


@given(DTYPES, shapes(), SEEDS)
def test_every_dtype_goes_through(dtype: DType, shape: tuple[int, ...], seed: int) -> None:
    array = random_array(seed, dtype, shape, special=True)
    assert_same(SESSIONS[dtype].run({"x0": array})["y0"], array)


def test_all_dtypes_in_one_call() -> None:
    session = Session(identity(*DType))
    arrays = {f"x{i}": random_array(i, dtype, (2, 3)) for i, dtype in enumerate(DType)}
    found = session.run(arrays)
    assert session.inputs == list(arrays)
    for i in range(len(arrays)):
        assert_same(found[f"y{i}"], arrays[f"x{i}"])


def test_arrays_that_are_not_contiguous() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert_same(SESSIONS[DType.F32].run({"x0": whole[::2, ::-1]})["y0"], whole[::2, ::-1].copy())
    half = whole.astype(ml_dtypes.bfloat16).T
    assert_same(SESSIONS[DType.BF16].run({"x0": half})["y0"], np.ascontiguousarray(half))


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(identity(DType.I64))
    array = np.array([3, -4])
    assert_same(Session(path).run({"x0": array})["y0"], array)


def test_a_file_that_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not onnx")
    with pytest.raises(SexpgpuError) as caught:
        Session(path)
    assert caught.value.code == "E-VERIFY-002"
    assert caught.value.message == "ONNX Runtime refuses the file"
    assert caught.value.came


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_a_call_that_fails(dtype: DType) -> None:
    session = Session(identity(dtype, shape=(2, 3)))
    with pytest.raises(SexpgpuError) as caught:
        session.run({"x0": np.zeros((4, 4), dtype.numpy)})
    assert caught.value.code == "E-VERIFY-002"
    assert caught.value.message == "ONNX Runtime fails while running the file"


def test_an_operator_that_fails_while_it_runs() -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        "gather",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [None])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
        [onnx.numpy_helper.from_array(np.zeros(3, np.float32), "table")],
    )
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    with pytest.raises(SexpgpuError) as caught:
        Session(model.SerializeToString()).run({"x": np.array([7])})
    assert caught.value.code == "E-VERIFY-002"
