"""Buffers, runs, and what answers look like where they are no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.serve.engine import Engine, RunFailed, reason
from sexpgpu.serve.session import open_session
from support.hosting import CPU
from support.serving import declare, onnx_hosted


def engine(inputs: str, outputs: str, body: str, limit: int = 4) -> Engine:
    hosted = onnx_hosted(inputs, outputs, body)
    return Engine(open_session(hosted, CPU, 1), hosted, limit)


def test_buffers_begin_where_vectors_do() -> None:
    made = engine("float[N,3] x, bool[N] b", "float[N,3] y, bool[N] c", "y = Neg (x) c = Not (b)")
    for buffers in (made.buffers, made.new_buffers(), made.new_buffers(7)):
        for rows in (*buffers.inputs, *buffers.outputs):
            assert rows.memory.ctypes.data % 64 == 0


def test_rows_are_records_side_by_side() -> None:
    made = engine("float[N,2] x", "float[N,2] y", "y = Neg (x)")
    rows = made.buffers.inputs[0]
    for number in range(4):
        rows.row(number)[:] = np.full(2, number, np.float32).tobytes()
    assert rows.records(4).tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    made.run(3)
    found = made.buffers.outputs[0].records(4)
    assert found.tolist() == [[0, 0], [-1, -1], [-2, -2], [0, 0]]


def test_tensors_without_elements_and_without_axes() -> None:
    made = engine("float[N,0] x, float k", "float[N,0] y, float l", "y = Neg (x) l = Neg (k)", 1)
    made.buffers.inputs[1].records(1)[:] = 3
    made.run(1)
    assert made.buffers.outputs[0].row(0).nbytes == 0
    assert made.buffers.outputs[1].records(1).tolist() == [[-3]]


@pytest.mark.parametrize(
    ("dtype", "quiet", "others"),
    [
        ("f32", "0000c07f", ["0000c0ff", "0100807f", "ffffffff"]),
        ("f64", "000000000000f87f", ["000000000000f8ff", "010000000000f07f"]),
        ("bf16", "c07f", ["c0ff", "817f", "ffff"]),
    ],
)
def test_every_nan_is_one_and_the_same(dtype: str, quiet: str, others: list[str]) -> None:
    body = "y = Identity (x)"
    made = engine(declare({"x": (dtype, [2])}), declare({"y": (dtype, [2])}), body)
    size = len(bytes.fromhex(quiet))
    one = np.ones(1, made.hosted.inputs[0].dtype.numpy).tobytes()
    for number, other in enumerate(others):
        made.buffers.inputs[0].row(number)[:] = one + bytes.fromhex(other)
    made.run(len(others))
    for number in range(len(others)):
        row = bytes(made.buffers.outputs[0].row(number))
        assert row[:size] == one
        assert row[size:] == bytes.fromhex(quiet)


def test_infinities_and_zeros_stay_as_they_are() -> None:
    made = engine("float[N,4] x", "float[N,4] y", "y = Identity (x)")
    record = np.array([np.inf, -np.inf, -0.0, np.nan], np.float32)
    made.buffers.inputs[0].row(0)[:] = record.tobytes()
    made.run(1)
    assert bytes(made.buffers.outputs[0].row(0))[:12] == record.tobytes()[:12]


def test_a_run_that_fails_says_why() -> None:
    made = engine(
        "int64[N] i", "float[N] y", "t = Constant <value_floats = [1.0]> () y = Gather (t, i)"
    )
    made.buffers.inputs[0].records(1)[:] = 5
    with pytest.raises(RunFailed) as caught:
        made.run(1)
    assert "5" in str(caught.value)
    assert "/" not in str(caught.value).split("range")[0]


def test_the_reason_is_without_codes_and_files() -> None:
    error = RuntimeError("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : it is wrong\nsecond line")
    assert reason(error) == "it is wrong"
