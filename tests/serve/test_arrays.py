"""Arrays as a model takes them: never rounded, and clear errors for the rest."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sexpgpu.export.graph.types import DType
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve.arrays import bind_arguments, count_records, fit
from sexpgpu.serve.protocol import TensorSpec

A = TensorSpec("a", (1, 2), DType.F32)
B = TensorSpec("b", (3, 2), DType.I32)
SCALAR = TensorSpec("k", (), DType.I64)
MASK = TensorSpec("mask", (1, 2), DType.BOOL)
HALF = TensorSpec("h", (1, 2), DType.BF16)
EMPTY = TensorSpec("e", (1, 0), DType.F32)


def error(call: Any, *arguments: Any) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        call(*arguments)
    assert caught.value.code == "E-CALL-010"
    return caught.value


def test_arguments_by_place_and_by_name() -> None:
    assert bind_arguments([A, B], [1], {"b": 2}) == [1, 2]
    assert bind_arguments([A, B], [], {"b": 2, "a": 1}) == [1, 2]


def test_arguments_that_do_not_fit() -> None:
    assert "takes 1 inputs" in error(bind_arguments, [A], [1, 2], {}).message
    assert error(bind_arguments, [A, MASK], [1], {"masc": 2}).help == "did you mean `mask`?"
    assert "given twice" in error(bind_arguments, [A], [1], {"a": 2}).message
    assert error(bind_arguments, [A, B], [1], {}).expected == "b"
    assert "`model(**inputs)`" in str(error(bind_arguments, [A], [{"a": 1}], {}).help)


@pytest.mark.parametrize(
    ("spec", "value", "shape"),
    [
        (A, np.zeros((1, 2), np.float32), (1, 2)),
        (A, np.zeros(2, np.float32), (1, 2)),
        (A, np.zeros((7, 2), np.float32), (7, 2)),
        (A, np.zeros((0, 2), np.float32), (0, 2)),
        (A, [1, 2.5], (1, 2)),
        (A, np.array([1, 2], ml_dtypes.bfloat16), (1, 2)),
        (A, np.array([1, 2], np.float16), (1, 2)),
        (A, np.array([1, 2], np.int8), (1, 2)),
        (B, np.zeros((6, 2), np.int64), (6, 2)),
        (B, np.zeros((3, 2), np.uint8), (3, 2)),
        (SCALAR, 5, ()),
        (SCALAR, np.int32(5), ()),
        (MASK, [True, False], (1, 2)),
        (HALF, [1.5, 2], (1, 2)),
        (EMPTY, np.zeros((4, 0), np.float32), (4, 0)),
    ],
)
def test_values_that_keep_what_they_are(
    spec: TensorSpec, value: Any, shape: tuple[int, ...]
) -> None:
    found = fit(spec, value)
    assert found.dtype == spec.dtype.numpy
    assert found.shape == shape
    np.testing.assert_array_equal(found.reshape(-1), np.asarray(value).reshape(-1))


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (A, np.zeros((1, 2))),
        (A, np.zeros((1, 2), np.int64)),
        (B, np.full((3, 2), 2**31)),
        (B, np.zeros((3, 2), np.float32)),
        (B, [[1.5, 2]] * 3),
        (HALF, np.zeros((1, 2), np.float32)),
        (MASK, [0, 1]),
        (A, [True, False]),
        (A, np.zeros((1, 2), np.complex64)),
        (A, ["1", "2"]),
        (A, [None, 1]),
    ],
)
def test_values_that_would_be_others(spec: TensorSpec, value: Any) -> None:
    assert f"`{spec.name}`" in error(fit, spec, value).message


@pytest.mark.parametrize(
    ("spec", "shape"),
    [(A, (1, 3)), (A, (2, 2, 2)), (A, ()), (B, (2, 2)), (B, (4, 2)), (SCALAR, (1,))],
)
def test_other_shapes(spec: TensorSpec, shape: tuple[int, ...]) -> None:
    found = error(fit, spec, np.zeros(shape, spec.dtype.numpy))
    assert found.came == str(list(shape))
    assert found.expected == str(spec)


def test_how_many_records() -> None:
    a, b = np.zeros((4, 2), np.float32), np.zeros((12, 2), np.int32)
    assert count_records([A, B], [a, b]) == 4
    assert count_records([SCALAR], [np.zeros(())]) == 1
    assert count_records([SCALAR, A], [np.zeros(()), a]) == 4
    assert count_records([EMPTY], [np.zeros((4, 0), np.float32)]) == 4
    assert error(count_records, [A, B], [a, b[:6]]).came == "`a` 4, `b` 2"
