"""How parameters begin: each initializer against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType, TensorType
from sexpgpu.export.language.initializers import INITIALIZERS, fans, initial_value
from sexpgpu.export.language.tensors import Initializer, Parameter


def drawn(
    name: str,
    *numbers: float,
    shape: tuple[int, ...] = (200, 300),
    dtype: DType = DType.F32,
    path: str = "w",
    seed: int = 0,
) -> Array:
    parameter = Parameter(TensorType(dtype, shape), Initializer(name, numbers))
    parameter.path = path
    return initial_value(parameter, seed)


ARGUMENTS = {"normal": (0.02,), "uniform": (-1.0, 1.0), "constant": (3.0,)}


@pytest.mark.parametrize("name", [*INITIALIZERS, "zeros", "ones"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (4, 6), (6, 4), (4, 3, 2, 2)])
def test_the_type_is_the_parameters(name: str, dtype: DType, shape: tuple[int, ...]) -> None:
    array = drawn(name, *ARGUMENTS.get(name, ()), shape=shape, dtype=dtype)
    assert (array.shape, array.dtype) == (shape, dtype.numpy)
    assert array.flags.c_contiguous
    assert np.isfinite(array.astype(np.float64)).all()


@pytest.mark.parametrize("name", ["normal", "uniform", "glorot", "he", "lecun", "orthogonal"])
def test_values_depend_on_path_and_seed_alone(name: str) -> None:
    numbers = ARGUMENTS.get(name, ())
    first = drawn(name, *numbers, shape=(8, 8))
    np.testing.assert_array_equal(first, drawn(name, *numbers, shape=(8, 8)))
    assert (first != drawn(name, *numbers, shape=(8, 8), seed=1)).any()
    assert (first != drawn(name, *numbers, shape=(8, 8), path="v")).any()


def test_constants() -> None:
    assert (drawn("zeros") == 0).all()
    assert (drawn("ones") == 1).all()
    assert (drawn("constant", 3.0) == 3).all()
    assert drawn("constant", math.inf)[0, 0] == math.inf
    assert (drawn("constant", 3.0, dtype=DType.I64, shape=(2,)) == 3).all()
    assert drawn("ones", dtype=DType.BOOL, shape=(2,)).all()


def test_normal() -> None:
    array = drawn("normal", 0.5)
    assert abs(array.mean()) < 0.01
    assert abs(array.std() - 0.5) < 0.01
    assert array.max() > 1.5


def test_uniform() -> None:
    array = drawn("uniform", -1.0, 3.0)
    assert -1 <= array.min() < -0.99
    assert 2.99 < array.max() <= 3
    assert abs(array.mean() - 1) < 0.05


@pytest.mark.parametrize(
    ("name", "variance", "bounded"),
    [("glorot", 2 / 500, True), ("he", 2 / 200, False), ("lecun", 1 / 200, False)],
)
def test_variances(name: str, variance: float, bounded: bool) -> None:
    array = drawn(name)
    assert abs(array.mean()) < 0.01
    assert abs(array.var() / variance - 1) < 0.05
    limit = math.sqrt(3 * variance)
    assert bool(abs(array).max() <= limit) is bounded


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (4, 3, 2)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    matrix = drawn("orthogonal", shape=shape, dtype=DType.F64).reshape(shape[0], -1)
    square = matrix @ matrix.T if shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(square, np.eye(len(square)), atol=1e-12)


def test_fans() -> None:
    assert fans(()) == (1, 1)
    assert fans((7,)) == (7, 7)
    assert fans((3, 5)) == (3, 5)
    assert fans((8, 3, 5, 5)) == (75, 200)
