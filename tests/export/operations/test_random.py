"""dropout, random-normal and random-uniform: distributions, seeds and rules."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sexpgpu.export.graph.reference import evaluate_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.operations.operation import Apart, all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import check_axis_rule, error_of, single

FLOATS = [DType.F32, DType.F64, DType.BF16]


def draw(name: str, inputs: list[Array] | None = None, batch: int = 1, **attributes: Any) -> Array:
    _, node = single(name, inputs or [], **attributes)
    return evaluate_node(node, inputs or [], batch)[0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers(dtype: DType) -> None:
    x = draw("random-normal", shape=(100, 100), mean=3.0, deviation=2.0, dtype=dtype)
    assert x.dtype == dtype.numpy
    wide = x.astype(np.float64)
    assert abs(wide.mean() - 3) < 0.1
    assert abs(wide.std() - 2) < 0.1
    assert abs((np.abs(wide - 3) < 2).mean() - 0.6827) < 0.02


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_numbers(dtype: DType) -> None:
    x = draw("random-uniform", shape=(10_000,), low=-1.0, high=3.0, dtype=dtype)
    assert x.dtype == dtype.numpy
    wide = x.astype(np.float64)
    assert wide.min() >= -1
    assert wide.max() <= 3
    counts = np.histogram(wide, 4, (-1, 3))[0]
    assert (np.abs(counts - 2500) < 200).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_keeps_the_mean(dtype: DType) -> None:
    x = np.full((100, 100), 3, dtype.numpy)
    y = draw("dropout", [x], rate=0.25)
    assert set(np.unique(y.astype(np.float64))) == {0.0, 4.0}
    assert abs(y.astype(np.float64).mean() - 3) < 0.1
    np.testing.assert_array_equal(draw("dropout", [x], rate=0.0), x)


def test_what_is_left_out_is_zero_whatever_it_was() -> None:
    y = draw("dropout", [np.full(1000, np.nan, np.float32)], rate=0.5)
    assert 400 < (y == 0).sum() < 600


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"),
    [
        ("random-normal", [], {"shape": (5,)}),
        ("random-uniform", [], {"shape": (5,)}),
        ("dropout", [np.ones(50, np.float32)], {"rate": 0.5}),
    ],
)
def test_equal_seeds_give_equal_numbers(
    name: str, inputs: list[Array], attributes: dict[str, Any]
) -> None:
    first = draw(name, inputs, **attributes, seed=1)
    np.testing.assert_array_equal(first, draw(name, inputs, **attributes, seed=1))
    assert (first != draw(name, inputs, **attributes, seed=2)).any()


def test_every_record_is_drawn_its_own() -> None:
    x = draw("random-normal", shape=(Batch(2), 3), batch=2)
    assert x.shape == (4, 3)
    assert len(np.unique(x)) == 12
    assert draw("random-uniform", shape=()).shape == ()


def test_a_model_alone_draws_none() -> None:
    for name, inputs, attributes in [
        ("random-normal", [], {"shape": (2,)}),
        ("random-uniform", [], {"shape": (2,)}),
        ("dropout", [np.ones(2, np.float32)], {"rate": 0.5}),
    ]:
        assert all_operations()[name].random
        graph, _ = single(name, inputs, **attributes)
        with pytest.raises(SexpgpuError) as caught:
            build_model(graph, {}.__getitem__, BuildOptions())
        assert caught.value.code == "E-ONNX-001"


def test_axes() -> None:
    x = np.ones((3, 4), np.float32)
    assert check_axis_rule("dropout", [x], rate=0.5) == 2
    _, node = single("dropout", [x], rate=0.5)
    rule = node.operation.axis_rule(0, 1, node.input_types, node.attributes, node.result_types)
    assert rule == [Apart(1)]
    for name in ("dropout", "random-normal", "random-uniform"):
        varies = all_operations()[name].varies_along({}, TensorType(DType.F32, (Batch(), 3)))
        assert varies == {0, 1}


X = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("code", "name", "inputs", "attributes"),
    [
        ("E-VALUE-001", "random-normal", [], {"shape": (-1,)}),  # random-normal 1
        ("E-VALUE-001", "random-uniform", [], {"shape": (-1,)}),  # random-uniform 1
        ("E-DTYPE-002", "random-normal", [], {"shape": (1,), "dtype": DType.I32}),  # 2
        ("E-DTYPE-002", "random-uniform", [], {"shape": (1,), "dtype": DType.BOOL}),  # 2
        ("E-VALUE-001", "random-normal", [], {"shape": (1,), "deviation": -1.0}),  # 3
        ("E-VALUE-001", "random-normal", [], {"shape": (1,), "mean": float("nan")}),  # 3
        ("E-VALUE-001", "random-uniform", [], {"shape": (1,), "low": 2.0}),  # 3
        ("E-VALUE-001", "random-uniform", [], {"shape": (1,), "high": float("inf")}),  # 3
        ("E-VALUE-001", "random-normal", [], {"shape": (1,), "seed": -1}),  # random-normal 4
        ("E-VALUE-001", "random-uniform", [], {"shape": (1,), "seed": -1}),  # random-uniform 4
        ("E-VALUE-001", "dropout", [X], {"rate": 1.0}),  # dropout 1
        ("E-VALUE-001", "dropout", [X], {"rate": -0.1}),  # dropout 1
        ("E-VALUE-001", "dropout", [X], {"rate": float("nan")}),  # dropout 1
        ("E-VALUE-001", "dropout", [X], {"rate": 0.5, "seed": -1}),  # dropout 2
        ("E-DTYPE-002", "dropout", [X.astype(np.int32)], {"rate": 0.5}),
        ("E-SHAPE-003", "random-normal", [], {"shape": (2**39,)}),
    ],
)
def test_constraints(code: str, name: str, inputs: list[Array], attributes: dict[str, Any]) -> None:
    error_of(code, name, inputs, **attributes)


def test_bf16_is_drawn_as_the_others_and_rounded() -> None:
    wide = draw("random-normal", shape=(50,), dtype=DType.F64)
    narrow = draw("random-normal", shape=(50,), dtype=DType.BF16)
    np.testing.assert_array_equal(narrow, wide.astype(ml_dtypes.bfloat16))
