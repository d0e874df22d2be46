"""A model inside the caller's own process."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve.hosted import Limits
from sexpgpu.serve.library import Model
from sexpgpu.serve.probe import Plan
from support.hosting import model_of
from support.serving import identity, onnx_hosted, plan_of

#: A table of ten rows, whose index ONNX Runtime checks while it runs, and a product.
LOOKUP = (
    "int64[N] i, float[N,4] x",
    "float[N,4] y",
    """
    table = Constant <value_floats = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]> ()
    row = Gather (table, i)
    axis = Constant <value_ints = [1]> ()
    column = Unsqueeze (row, axis)
    y = Mul (x, column)
    """,
)


def lookup(limit: int = 8, limits: dict[str, Limits] | None = None) -> Model:
    return model_of(onnx_hosted(*LOOKUP, limits), limit)


def test_one_record_many_records_and_none() -> None:
    with lookup(limit=4) as model:
        one = model(np.array([3]), np.ones((1, 4), np.float32))
        np.testing.assert_array_equal(one, np.full((1, 4), 0.3, np.float32))
        # Without the axis of records.
        np.testing.assert_array_equal(model(i=3, x=[1, 1, 1, 1]), one)
        indices = np.arange(19) % 10
        x = np.random.default_rng(0).standard_normal((19, 4)).astype(np.float32)
        many = model(indices, x)
        for number in range(19):
            alone = model(indices[number : number + 1], x[number : number + 1])
            assert many[number : number + 1].tobytes() == alone.tobytes()
        assert model(indices[:0], x[:0]).shape == (0, 4)
        assert model.calls == 1 + 1 + 19 + 19
        assert model.runs == 1 + 1 + 5 + 19


def test_more_records_than_wait_at_a_time() -> None:
    with lookup() as model:
        indices = np.arange(3000) % 10
        answer = model(indices, np.ones((3000, 4), np.float32))
        np.testing.assert_array_equal(answer[:, 0], (indices / 10).astype(np.float32))


def test_several_outputs_come_by_name() -> None:
    hosted = onnx_hosted("float[N] x", "float[N] a, float[N] b", "a = Neg (x) b = Abs (x)")
    answer = model_of(hosted)(np.array([-2, 3], np.float32))
    assert list(answer) == ["a", "b"]
    np.testing.assert_array_equal(answer["a"], np.array([2, -3], np.float32))
    np.testing.assert_array_equal(answer["b"], np.array([2, 3], np.float32))


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32", "i64", "bool"])
def test_every_dtype_comes_back(dtype: str) -> None:
    hosted = identity(dtype, [3])
    x = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]).astype(hosted.inputs[0].dtype.numpy)
    answer = model_of(hosted, 2)(x)
    assert answer.dtype == x.dtype
    assert answer.tobytes() == x.tobytes()


def test_threads_get_their_own_answers_with_the_bits_of_calls_alone() -> None:
    generator = np.random.default_rng(0)
    hosted = onnx_hosted(
        "float[N,9] x",
        "float[N,5] y",
        f"w = Constant <value = {_tensor(generator.standard_normal((9, 5)))}> () y = MatMul (x, w)",
    )
    model = model_of(hosted, 8)
    x = generator.standard_normal((200, 9)).astype(np.float32)
    alone = [model(x[i : i + 1]).tobytes() for i in range(200)]
    wrong: list[Any] = []

    def caller(seed: int) -> None:
        own = np.random.default_rng(seed)
        for _ in range(40):
            rows = own.integers(0, 200, int(own.integers(0, 20)))
            answer = model(x[rows])
            if [answer[k : k + 1].tobytes() for k in range(len(rows))] != [alone[r] for r in rows]:
                wrong.append(rows)

    _in_threads(32, caller)
    assert not wrong
    assert model.runs < model.calls


def test_an_error_is_its_own_callers_alone() -> None:
    # The index's limits are not known: the run fails, and its calls are run again one by one.
    with lookup(limit=8) as model:
        x = np.ones((1, 4), np.float32)

        def caller(seed: int) -> None:
            for _ in range(30):
                if seed % 4:
                    assert model(np.array([seed % 10]), x)[0, 0] == np.float32(seed % 10 / 10)
                else:
                    with pytest.raises(SexpgpuError) as caught:
                        model(np.array([99]), x)
                    assert caught.value.code == "E-CALL-010"
                    assert "99" in (caught.value.came or "")

        _in_threads(16, caller)


def test_a_bad_record_among_many_is_named() -> None:
    with lookup(limits={"i": Limits(-10, 10)}) as model:
        with pytest.raises(SexpgpuError) as caught:
            model(np.array([1, 2, 10, 3]), np.ones((4, 4), np.float32))
        assert caught.value.code == "E-CALL-010"
        assert caught.value.came == "record 2: `i`: 10 is outside 0 to 9"
        # Nothing of it is left.
        assert model(np.array([-1]), np.ones((1, 4), np.float32))[0, 0] == np.float32(0.9)


def test_rows_that_fill_a_size_up_are_good_ones() -> None:
    # What a failed call left in the second row must not make a run of one call fail.
    model = model_of(onnx_hosted(*LOOKUP), 2, plan_of([2], 2))
    x = np.ones((2, 4), np.float32)
    with pytest.raises(SexpgpuError) as caught:
        model(np.array([1, 99]), x)
    assert (caught.value.came or "").startswith("record 1: ")
    assert model(np.array([1]), x[:1])[0, 0] == np.float32(0.1)
    assert model.runs == 2


def test_an_interrupted_call_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lookup()
    x = np.ones((1, 4), np.float32)
    run = model._loaded.engine.run  # type: ignore[union-attr]
    entered, interrupt = threading.Event(), threading.Event()
    first = [True]

    def slow(size: int) -> None:
        if first.pop() if first else False:
            entered.set()
            interrupt.wait(120)
            raise KeyboardInterrupt
        run(size)

    monkeypatch.setattr(model._loaded.engine, "run", slow)  # type: ignore[union-attr]
    answers: list[Array] = []
    errors: list[BaseException] = []

    def interrupted() -> None:
        try:
            model(np.array([1]), x)
        except KeyboardInterrupt as error:
            errors.append(error)

    one = threading.Thread(target=interrupted)
    one.start()
    entered.wait(120)
    other = threading.Thread(target=lambda: answers.append(model(np.array([2]), x)))
    other.start()
    interrupt.set()
    one.join(120)
    other.join(120)
    assert len(errors) == 1
    assert answers[0][0, 0] == np.float32(0.2)


def test_wrong_arrays_are_refused() -> None:
    with lookup() as model:
        x = np.ones((1, 4), np.float32)
        for arguments in (
            (np.array([1]), np.ones((1, 5), np.float32)),
            (np.array([1]), np.ones((1, 4))),
            (np.array([1.5]), x),
            (np.array([1, 2]), x),
            (np.array([1]),),
            (np.array([1]), x, x),
            (np.array(["a"]), x),
        ):
            with pytest.raises(SexpgpuError) as caught:
                model(*arguments)
            assert caught.value.code == "E-CALL-010"
        with pytest.raises(SexpgpuError, match="no input `y`"):
            model(np.array([1]), y=x)


def test_close_frees_the_session() -> None:
    model = lookup()
    session = weakref.ref(model._loaded.engine.session)  # type: ignore[union-attr]
    model.close()
    model.close()
    gc.collect()
    assert session() is None
    with pytest.raises(SexpgpuError, match="closed") as caught:
        model(np.array([1]), np.ones((1, 4), np.float32))
    assert caught.value.code == "E-CALL-010"
    # What it takes and gives can still be asked for.
    assert [spec.name for spec in model.inputs] == ["i", "x"]


def test_a_forked_process_is_told_to_load_its_own() -> None:
    model = lookup()
    child = os.fork()
    if not child:
        status = 1
        try:
            model(np.array([1]), np.ones((1, 4), np.float32))
        except SexpgpuError as error:
            status = 0 if "forked" in error.message else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_memory_is_flat() -> None:
    model = lookup(limits={"i": Limits(-10, 10)})
    indices, x = np.arange(500) % 10, np.ones((500, 4), np.float32)
    one = x[:1]

    def calls(count: int) -> int:
        for number in range(count):
            model(indices, x)
            try:
                model(np.array([10 if number % 5 == 0 else 3]), one)
            except SexpgpuError:
                assert number % 5 == 0
        gc.collect()
        return _resident()

    before = calls(40)
    after = calls(160)
    assert model.calls > 100_000 * 0.9
    assert after - before < 2 << 20


def test_a_plan_of_one_runs_one_at_a_time() -> None:
    model = model_of(onnx_hosted(*LOOKUP), 1, Plan(1, (0, 1)))
    model(np.arange(5), np.ones((5, 4), np.float32))
    assert (model.calls, model.runs) == (5, 5)


def test_bf16_goes_in_and_out_as_ml_dtypes() -> None:
    hosted = onnx_hosted(
        "bfloat16[N,2] x",
        "bfloat16[N,2] y",
        "wide = Cast <to = 1> (x) sum = Add (wide, wide) y = Cast <to = 16> (sum)",
    )
    x = np.array([[1.5, np.nan], [3, -np.inf]], ml_dtypes.bfloat16)
    answer = model_of(hosted, 2)(x)
    assert answer.dtype == ml_dtypes.bfloat16
    assert answer.view(np.uint16).tolist() == [[0x4040, 0x7FC0], [0x40C0, 0xFF80]]


def _tensor(array: Array) -> str:
    shape = ", ".join(map(str, array.shape))
    return f"float[{shape}] {{{', '.join(f'{v:.7f}' for v in array.ravel())}}}"


def _in_threads(count: int, caller: Any) -> None:
    failures: list[BaseException] = []

    def guarded(seed: int) -> None:
        try:
            caller(seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
