"""The blocking client: arrays in and out, errors, timeouts, and servers that are not ours."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sexpgpu.export.graph.types import DType
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import Client
from sexpgpu.serve.hosted import Limits
from sexpgpu.serve.protocol import TensorSpec
from support.serving import PATIENCE, Live, declare, identity, onnx_hosted, serving


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """`scores` of [1, 2] f32 and `at` of [1] i32, which has 8 positions; both come back changed."""
    hosted = onnx_hosted(
        declare({"scores": ("f32", [2]), "at": ("i32", [])}),
        declare({"logits": ("f32", [2]), "aux": ("i32", [])}),
        "logits = Neg (scores)\naux = Neg (at)",
        {"at": Limits(0, 8)},
    )
    with serving(hosted) as running:
        yield running


def test_it_knows_what_the_model_takes(live: Live) -> None:
    with Client(live.path) as client:
        assert client.inputs == (
            TensorSpec("scores", (1, 2), DType.F32),
            TensorSpec("at", (1,), DType.I32),
        )
        assert [str(spec) for spec in client.outputs] == ["logits [1, 2] f32", "aux [1] i32"]
        assert client.about["precision"] == "f32"
        assert client.about["device"] == "cpu"


def test_several_outputs_are_a_dict(live: Live) -> None:
    with Client(live.path) as client:
        answer = client.call(np.array([[1, 2]], np.float32), at=np.array([3], np.int32))
    assert list(answer) == ["logits", "aux"]
    np.testing.assert_array_equal(answer["logits"], np.array([[-1, -2]], np.float32))
    np.testing.assert_array_equal(answer["aux"], np.array([-3], np.int32))


def test_a_first_axis_of_one_may_be_left_out_and_numbers_be_lists(live: Live) -> None:
    with Client(live.path) as client:
        for scores, at in (([0.1, 2], 3), ([[0.1, 2]], [3]), ((0.1, 2.0), np.int64(3))):
            answer = client(scores=scores, at=at)
            assert answer["logits"].tolist() == [[-np.float32(0.1), -2]]


@pytest.mark.parametrize("dtype", list(DType))
def test_one_output_is_an_array_of_its_dtype(dtype: DType) -> None:
    values = np.array([[0, 1, 1]], dtype.numpy)
    with serving(identity(dtype.value, [3])) as running, Client(running.path) as client:
        answer = client.call(values)
        assert answer.dtype == dtype.numpy
        assert answer.tobytes() == values.tobytes()
        assert answer.flags.writeable


def test_each_answer_is_an_array_of_its_own(live: Live) -> None:
    with Client(live.path) as client:
        first = client.call([1, 1], 1)["logits"]
        client.call([2, 2], 2)
        assert first.tolist() == [[-1, -1]]


def test_arrays_that_lie_otherwise_are_sent_as_they_read() -> None:
    base = np.arange(12, dtype=np.float32).reshape(4, 3)
    with serving(identity("f32", [3, 4])) as running, Client(running.path) as client:
        for array in (base.T, base.T[:, ::-1], np.asfortranarray(base.T), base.T.astype(">f4")):
            np.testing.assert_array_equal(client.call(array)[0], array)


def test_scalars_and_tensors_without_elements() -> None:
    hosted = onnx_hosted(
        declare({"a": ("f32", [0]), "b": ("i64", [])}),
        declare({"c": ("f32", [0]), "d": ("i64", [])}),
        "c = Neg (a)\nd = Neg (b)",
    )
    with serving(hosted) as running, Client(running.path) as client:
        answer = client.call([], 5)
        assert answer["c"].shape == (1, 0)
        assert answer["d"].tolist() == [-5]


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        ((), {}, "inputs are missing"),
        (([1, 2],), {}, "inputs are missing"),
        (([1, 2], 1, 2), {}, "takes 2 inputs"),
        (([1, 2],), {"att": 1}, "no input `att`"),
        (([1, 2],), {"scores": [1, 2], "at": 1}, "`scores` is given twice"),
        (([1, 2, 3], 1), {}, "`scores` has another shape"),
        ((np.zeros((2, 2), np.float32), 1), {}, "`scores` has another shape"),
        (([1, 2], 1.5), {}, "`at` would not keep its values as i32"),
        (([1, 2], np.float32(1)), {}, "`at` would not keep its values as i32"),
        (([1, 2], 2**40), {}, "`at` would not keep its values as i32"),
        ((np.array([0.1, 2]), 1), {}, "`scores` would not keep its values as f32"),
        ((["a", "b"], 1), {}, "`scores` holds no numbers"),
        (([True, False], 1), {}, "`scores` would not keep its values as f32"),
    ],
)
def test_arrays_that_do_not_fit(
    live: Live, arguments: tuple[Any, ...], named: dict[str, Any], words: str
) -> None:
    with Client(live.path) as client:
        with pytest.raises(SexpgpuError) as caught:
            client.call(*arguments, **named)
        assert caught.value.code == "E-CALL-010"
        assert words in caught.value.message
        assert client.call([1, 2], 1)["aux"].tolist() == [-1]


def test_what_the_server_refuses_has_its_words_and_the_client_goes_on(live: Live) -> None:
    with Client(live.path) as client:
        with pytest.raises(SexpgpuError) as caught:
            client.call([1, 2], 8)
        assert caught.value.code == "E-CLIENT-002"
        assert caught.value.message == "`at`: 8 is outside 0 to 7"
        assert client.call([1, 2], 7)["aux"].tolist() == [-7]


@pytest.mark.parametrize("outputs", [0, 1, 40, 4000])
def test_an_error_is_read_whole_whatever_an_answer_is_long(outputs: int) -> None:
    hosted = onnx_hosted(
        declare({"x": ("i32", [])}),
        declare({"y": ("f32", [outputs])}),
        f"shape = Constant <value_ints = [{outputs}]> ()\none = Constant <value_ints = [1]> ()\n"
        "n = Shape (x)\nall = Concat <axis = 0> (n, shape)\n"
        "c = Cast <to = 1> (x)\nd = Unsqueeze (c, one)\ny = Expand (d, all)",
        {"x": Limits(0, 8)},
    )
    with serving(hosted) as running, Client(running.path) as client:
        for _ in range(2):
            with pytest.raises(SexpgpuError, match="`x`: 9 is outside 0 to 7"):
                client.call(9)
            assert client.call(5).tolist() == [[5] * outputs]


def test_many_records_in_one_go(live: Live) -> None:
    records = [([i, i], i % 8) for i in range(1000)]
    with Client(live.path, timeout=PATIENCE) as client:
        answers = client.call_many(records)
        assert [a["logits"][0, 0] for a in answers] == [-i for i in range(1000)]
        assert client.call_many([]) == []
        named = client.call_many([{"at": 1, "scores": [0, 1]}])
        assert named[0]["aux"].tolist() == [-1]


def test_many_records_of_one_input() -> None:
    records = np.arange(30, dtype=np.float32).reshape(10, 3)
    with serving(identity("f32", [3])) as running, Client(running.path) as client:
        np.testing.assert_array_equal(np.concatenate(client.call_many(records)), records)
        np.testing.assert_array_equal(np.concatenate(client.call_many(records.tolist())), records)


def test_one_of_many_that_is_refused(live: Live) -> None:
    records = [([i, i], at) for i, at in enumerate([1, 9, 2, -1, 3])]
    with Client(live.path) as client:
        with pytest.raises(SexpgpuError, match="9 is outside") as caught:
            client.call_many(records)
        assert caught.value.code == "E-CLIENT-002"
        assert "record 1 of 5" in caught.value.notes[0]
        answers = client.call_many(records, return_exceptions=True)
        assert [type(answer).__name__ for answer in answers] == [
            "dict", "SexpgpuError", "dict", "SexpgpuError", "dict",
        ]  # fmt: skip
        assert answers[4]["aux"].tolist() == [-3]


def test_none_of_many_is_sent_where_one_does_not_fit(live: Live) -> None:
    before = live.server.calls
    with Client(live.path) as client:
        with pytest.raises(SexpgpuError) as caught:
            client.call_many([([1, 2], 1), ([1, 2], 1.5)])
        assert caught.value.code == "E-CALL-010"
    assert live.server.calls == before


@pytest.mark.parametrize("timeout", [None, PATIENCE])
def test_many_large_records_neither_side_waiting_for_the_other(timeout: float | None) -> None:
    records = [np.full((1, 1 << 19), i, np.float32) for i in range(6)]
    hosted = identity("f32", [1 << 19])
    with serving(hosted) as running, Client(running.path, timeout=timeout) as client:
        for i, answer in enumerate(client.call_many(records)):
            assert answer.tobytes() == records[i].tobytes()


def test_threads_may_share_a_client(live: Live) -> None:
    wrong = []
    with Client(live.path) as client:

        def drive(number: int) -> None:
            for _ in range(50):
                if client.call([number, number], number)["aux"].tolist() != [-number]:
                    wrong.append(number)

        threads = [threading.Thread(target=drive, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def _error(action: Callable[[], Any]) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        action()
    return caught.value


def test_no_server(tmp_path: Path) -> None:
    error = _error(lambda: Client(tmp_path / "none.sock"))
    assert error.code == "E-CLIENT-001"
    assert error.came == "No such file or directory"
    assert "sexpgpu serve" in (error.help or "")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "stale.sock"))
    stale.close()
    assert _error(lambda: Client(tmp_path / "stale.sock")).came == "Connection refused"
    assert _error(lambda: Client(str(tmp_path / ("x" * 200)))).code == "E-CLIENT-001"


def test_a_client_that_was_closed(live: Live) -> None:
    client = Client(live.path)
    client.close()
    for action in (lambda: client.call([1, 2], 1), lambda: client.call_many([([1, 2], 1)])):
        error = _error(action)
        assert (error.code, error.came) == ("E-CLIENT-001", "it was closed before")


def test_a_client_loads_no_onnx_runtime() -> None:
    code = "import sys, sexpgpu.serve as s; s.Client; print('onnxruntime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_large_call_is_sent_from_where_it_lies() -> None:
    """A client's memory grows by the answer alone."""
    size = 64 << 20
    with serving(identity("f32", [size // 4]), limit=1) as running:
        code = f"""
import numpy as np
from sexpgpu.serve import Client
def peak():
    # Not ru_maxrss, which begins with what the parent had.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
array = np.ones((1, {size // 4}), np.float32)
with Client({running.path!r}) as client:
    before = peak()
    answer = client.call(array)
    assert answer[0, 0] == answer[0, -1] == 1
    print(peak() - before)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 0.9 * size < int(done.stdout) * 1024 < 1.5 * size


def test_what_is_of_bf16_comes_as_ml_dtypes() -> None:
    with serving(identity("bf16", [3])) as running, Client(running.path) as client:
        answer = client.call([0.5, -1, 3])
        assert answer.dtype == ml_dtypes.bfloat16
        assert answer.astype(np.float32).tolist() == [[0.5, -1, 3]]
