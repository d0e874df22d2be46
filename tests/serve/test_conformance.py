"""The protocol to the byte, spoken without a client of ours."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest

from sexpgpu.export.graph.types import DType
from sexpgpu.export.initial import write_initial
from sexpgpu.serve.hosted import Shaping, open_operand
from support.serving import (
    EVERY_DTYPE,
    Live,
    declare,
    identity,
    onnx_hosted,
    pack,
    serving,
    wait_until,
)

DTYPES = [dtype.value for dtype in DType]


@pytest.fixture(scope="module")
def echo() -> Iterator[Live]:
    """[1, 3] f32, and the same again."""
    with serving(identity("f32", [3])) as live:
        yield live


CALL = np.array([1.5, -0.0, np.inf], np.float32).tobytes()


def test_the_greeting_is_the_first_frame(echo: Live) -> None:
    with echo.connect() as wire:
        assert wire.about["inputs"] == [{"name": "x", "shape": [1, 3], "dtype": "f32"}]
        assert wire.about["outputs"] == [{"name": "y", "shape": [1, 3], "dtype": "f32"}]
        assert {"checkpoint", "step", "slug", "precision"} <= set(wire.about)


TWO_HEADS = """
(def record (fields :tokens (list i32 6)))
(defmodel two-heads ()
  (parts table (param (list 9 4) :init (normal 1.0)))
  (apply (tokens)
    (let (x (cumsum (take table tokens) :axis 1))
      (list :logits (matmul x (transpose table)) :norms (sum (* x x) :axis -1)))))
(def model (two-heads))
"""


@pytest.fixture(scope="module")
def two_heads(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of a model of six tokens, with `logits` [1, 6, 9] and `norms` [1, 6]."""
    folder = tmp_path_factory.mktemp("two-heads")
    (folder / "program.sx").write_text(TWO_HEADS)
    write_initial(folder / "program.sx", str(folder / "run"), step=20)
    return str(folder / "run")


TOKENS = np.array([[1, 2, 3, 4, 5, 6]], np.int32)


def test_the_greeting_is_as_the_flags_left_it(two_heads: str) -> None:
    tokens: dict[str, Any] = {"name": "inputs", "shape": [1, 6], "dtype": "i32"}
    at: dict[str, Any] = {"name": "at", "shape": [1], "dtype": "i32"}
    logits: dict[str, Any] = {"name": "logits", "shape": [1, 6, 9], "dtype": "f32"}
    norms: dict[str, Any] = {"name": "norms", "shape": [1, 6], "dtype": "f32"}
    with serving(open_operand(two_heads, Shaping())) as live, live.connect() as wire:
        assert wire.about["inputs"] == [tokens]
        assert wire.about["outputs"] == [logits, norms]
        assert wire.about["step"] == 20
        assert wire.about["checkpoint"].endswith("step-00000020")
        whole = np.frombuffer(wire.call(TOKENS.tobytes()), np.float32, offset=1)
    rows = whole[:54].reshape(6, 9)
    for shaping, outputs in (
        (Shaping(at=True), [logits | {"shape": [1, 1, 9]}, norms | {"shape": [1, 1]}]),
        (Shaping(("norms",), at=True), [norms | {"shape": [1, 1]}]),
        (Shaping(("logits",), at=True), [logits | {"shape": [1, 1, 9]}]),
    ):
        with serving(open_operand(two_heads, shaping)) as live, live.connect() as wire:
            assert wire.about["inputs"] == [tokens, at]
            assert wire.about["outputs"] == outputs
            for place in range(6):
                answer = wire.call(TOKENS.tobytes() + struct.pack("<i", place))
                parts = {"logits": rows[place].tobytes(), "norms": whole[54 + place].tobytes()}
                assert answer == b"\0" + b"".join(parts[output["name"]] for output in outputs)
            for place in (6, -1, 2**31 - 1, -(2**31)):
                answer = wire.call(TOKENS.tobytes() + struct.pack("<i", place))
                assert answer == f"\1`at`: {place} is outside 0 to 5".encode()


def test_an_answer_is_a_status_and_the_outputs(echo: Live) -> None:
    with echo.connect() as wire:
        assert wire.call(CALL) == b"\0" + CALL


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_bytes(dtype: str) -> None:
    width = DType(dtype).itemsize
    payload = bytes([0, 1] * 3) if dtype == "bool" else bytes(range(128, 128 + 6 * width))
    with serving(identity(dtype, [2, 3])) as live, live.connect() as wire:
        assert wire.call(payload) == b"\0" + payload


def test_a_bf16_is_the_high_half_of_an_f32() -> None:
    hosted = onnx_hosted(
        declare({"x": ("bf16", [4])}), declare({"y": ("f32", [4])}), "y = Cast <to = 1> (x)"
    )
    values = np.array([1.0, -2.5, 3.140625, 1e30], np.float32)
    high = (values.view(np.uint32) >> 16).astype("<u2")
    with serving(hosted) as live, live.connect() as wire:
        answer = np.frombuffer(wire.call(high.tobytes()), "<u4", offset=1)
        np.testing.assert_array_equal(answer, high.astype(np.uint32) << 16)


def test_several_tensors_stand_in_order_without_gaps() -> None:
    inputs = {f"x_{name}": (name, [3]) for name in ("f32", "f64", "bf16", "i32", "i64", "bool")}
    outputs = {name.replace("x", "y"): value for name, value in reversed(inputs.items())}
    hosted = onnx_hosted(declare(inputs), declare(outputs), EVERY_DTYPE)
    arrays = [np.arange(3) % 2 for _ in inputs]
    payload = pack(hosted.inputs, arrays)
    expected = b"".join(
        np.asarray(arrays[0]).astype(s.dtype.numpy).tobytes() for s in hosted.outputs
    )
    with serving(hosted) as live, live.connect() as wire:
        assert [item["name"] for item in wire.about["inputs"]] == list(inputs)
        assert [item["name"] for item in wire.about["outputs"]] == list(outputs)
        assert wire.call(payload) == b"\0" + expected


def test_a_model_of_no_inputs_is_called_with_an_empty_frame() -> None:
    hosted = onnx_hosted("", "float[2] y", "y = Constant <value = float[2] {1.0, 2.0}> ()")
    with serving(hosted, limit=1) as live, live.connect() as wire:
        for _ in range(3):
            assert wire.call(b"") == b"\0" + np.array([1, 2], np.float32).tobytes()
        assert wire.call(b"1")[0] == 1
        assert wire.at_end()


def test_tensors_without_elements_take_no_bytes() -> None:
    shapes = {"a": ("f32", [0, 4]), "b": ("i64", [2]), "c": ("f32", [0])}
    hosted = onnx_hosted(
        declare(shapes),
        declare({"p": ("f32", [0, 4]), "q": ("i64", [2]), "r": ("f32", [0])}),
        "p = Neg (a)\nq = Neg (b)\nr = Neg (c)",
    )
    with serving(hosted) as live, live.connect() as wire:
        answer = wire.call(struct.pack("<qq", 7, -9))
        assert answer == b"\0" + struct.pack("<qq", -7, 9)


def test_an_answer_without_elements_is_the_status_alone() -> None:
    with serving(identity("f32", [0])) as live, live.connect() as wire:
        assert wire.call(b"") == b"\0"
        assert wire.call(b"") == b"\0"


@pytest.mark.parametrize(
    "length", [0, 1, 11, 13, 2**16, 2**31, 2**32, 2**32 + 12, 2**63, 2**64 - 1]
)
def test_another_length_is_an_error_and_the_end(echo: Live, length: int) -> None:
    with echo.connect() as wire:
        wire.socket.sendall(struct.pack("<Q", length) + b"\0" * min(length, 64))
        answer = wire.frame()
        assert answer[0] == 1
        assert answer[1:].decode() == f"a call is 12 bytes, a frame of {length:,} came"
        assert wire.at_end()


def test_a_right_call_before_a_wrong_one_is_answered(echo: Live) -> None:
    with echo.connect() as wire:
        wire.socket.sendall(struct.pack("<Q", 12) + CALL + struct.pack("<Q", 13) + CALL)
        assert wire.frame() == b"\0" + CALL
        assert wire.frame()[0] == 1
        assert wire.at_end()


def test_a_frame_may_be_split_anywhere(echo: Live) -> None:
    message = struct.pack("<Q", len(CALL)) + CALL
    with echo.connect() as wire:
        for place in range(1, len(message)):
            wire.socket.sendall(message[:place])
            time.sleep(0.002)
            wire.socket.sendall(message[place:])
            assert wire.frame() == b"\0" + CALL


def test_a_frame_may_come_byte_by_byte(echo: Live) -> None:
    with echo.connect() as wire:
        for byte in struct.pack("<Q", len(CALL)) + CALL:
            wire.socket.sendall(bytes([byte]))
            time.sleep(0.001)
        assert wire.frame() == b"\0" + CALL


def test_calls_may_be_sent_before_the_answers_are_read(echo: Live) -> None:
    calls = [np.full(3, i, np.float32).tobytes() for i in range(300)]
    with echo.connect() as wire:
        wire.socket.sendall(b"".join(struct.pack("<Q", 12) + call for call in calls))
        assert [wire.frame() for _ in calls] == [b"\0" + call for call in calls]


def test_whoever_only_sends_keeps_nobody_waiting(echo: Live) -> None:
    with echo.connect() as greedy, echo.connect() as other:
        greedy.socket.setblocking(False)
        message = (struct.pack("<Q", 12) + CALL) * 1000
        sent = 0
        for _ in range(200):
            try:
                sent += greedy.socket.send(message)
            except BlockingIOError:
                time.sleep(0.001)
            assert other.call(CALL) == b"\0" + CALL
        greedy.socket.settimeout(20)
        for _ in range(sent // 20):
            assert greedy.frame() == b"\0" + CALL


@pytest.mark.parametrize("part", [1, 7, 8, 9, 19])
def test_half_a_frame_and_a_close_costs_nothing(echo: Live, part: int) -> None:
    wire = echo.connect()
    wire.socket.sendall((struct.pack("<Q", 12) + CALL)[:part])
    time.sleep(0.01)
    wire.close()
    with echo.connect() as other:
        assert other.call(CALL) == b"\0" + CALL
    _settle(echo)


def test_a_close_while_the_answer_is_due_costs_nothing(echo: Live) -> None:
    for _ in range(50):
        wire = echo.connect()
        wire.send(CALL)
        wire.close()
    with echo.connect() as other:
        assert other.call(CALL) == b"\0" + CALL
    _settle(echo)


def test_whoever_shuts_down_sending_still_gets_its_answers(echo: Live) -> None:
    with echo.connect() as wire:
        wire.socket.sendall((struct.pack("<Q", 12) + CALL) * 3)
        wire.socket.shutdown(socket.SHUT_WR)
        assert [wire.frame() for _ in range(3)] == [b"\0" + CALL] * 3
        assert wire.at_end()


def _settle(live: Live) -> None:
    """The server lets go of every client."""
    wait_until(lambda: not live.server.connections)


def test_answers_have_the_bits_of_onnx_runtime_alone() -> None:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((16, 16)).astype(np.float32)
    numbers = ", ".join(repr(float(x)) for x in weight.reshape(-1))
    hosted = onnx_hosted(
        declare({"x": ("f32", [16])}),
        declare({"y": ("f32", [16])}),
        f"w = Constant <value = float[16,16] {{{numbers}}}> ()\nz = MatMul (x, w)\ny = Tanh (z)",
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    alone = ort.InferenceSession(hosted.model, options, providers=["CPUExecutionProvider"])
    records = generator.standard_normal((40, 1, 16)).astype(np.float32)
    wrong = []

    def drive(live: Live, part: list[np.ndarray]) -> None:
        with live.connect() as wire:
            for record in part:
                [expected] = alone.run(None, {"x": record})
                if wire.call(record.tobytes()) != b"\0" + expected.tobytes():
                    wrong.append(record)

    with serving(hosted, limit=4) as live:
        threads = [
            threading.Thread(target=drive, args=(live, list(records[i::8]))) for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert live.server.calls == 40
    assert not wrong


def test_the_bytes_of_bf16_are_those_of_ml_dtypes() -> None:
    values = np.array([0.1, -7, np.nan, 1e-40], ml_dtypes.bfloat16)
    with serving(identity("bf16", [4])) as live, live.connect() as wire:
        assert wire.call(values.tobytes()) == b"\0" + values.tobytes()
