"""What is drawn in JAX: equal for equal keys and seeds, and of the distribution that was asked."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.tools.train.lowering.random import happens
from support.differentiated import apply, gradients

COUNT = 200_000
KEY = jax.random.key(7)


def draw(name: str, inputs: tuple[Any, ...] = (), key: jax.Array = KEY, **attributes: Any) -> Array:
    return np.asarray(jax.jit(lambda *x: apply(name, x, key, **attributes)[0])(*inputs))


DRAWS: list[tuple[str, dict[str, Any], float, float]] = [
    ("random-normal", {}, 0, 1),
    ("random-normal", {"mean": -3.0, "deviation": 0.25}, -3, 0.25),
    ("random-uniform", {}, 0.5, 12**-0.5),
    ("random-uniform", {"low": -2.0, "high": 4.0}, 1, 6 * 12**-0.5),
]


@pytest.mark.parametrize(("name", "attributes", "mean", "deviation"), DRAWS)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16])
def test_distributions(
    name: str, attributes: dict[str, Any], mean: float, deviation: float, dtype: DType
) -> None:
    drawn = draw(name, shape=(COUNT,), dtype=dtype, **attributes)
    assert drawn.dtype == dtype.numpy
    wide = drawn.astype(np.float64)
    # Six standard errors.
    assert wide.mean() == pytest.approx(mean, abs=6 * deviation / COUNT**0.5 + 1e-3)
    assert wide.std() == pytest.approx(deviation, rel=6 / COUNT**0.5 + 1e-3)
    if name == "random-uniform":
        low, high = attributes.get("low", 0.0), attributes.get("high", 1.0)
        assert low <= wide.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < wide.max() <= high
    else:
        # 68.27 % lie within one deviation, 0.27 % beyond three.
        away = np.abs(wide - mean) / deviation
        assert np.mean(away < 1) == pytest.approx(0.6827, abs=0.02)
        assert np.mean(away > 3) == pytest.approx(0.0027, abs=0.001)


@pytest.mark.parametrize("name", ["random-normal", "random-uniform"])
def test_equal_keys_and_seeds_give_equal_numbers_and_others_do_not(name: str) -> None:
    first = draw(name, shape=(100,), seed=3)
    np.testing.assert_array_equal(draw(name, shape=(100,), seed=3), first)
    others = [
        draw(name, shape=(100,), seed=4),
        draw(name, shape=(100,), seed=3 + 2**32),
        draw(name, shape=(100,), seed=3 + 2**70),
        draw(name, shape=(100,), seed=3, key=jax.random.key(8)),
    ]
    for index, other in enumerate(others):
        assert not np.any(other == first)
        assert not any(np.any(other == later) for later in others[index + 1 :])


def test_limits_of_an_interval() -> None:
    assert set(draw("random-uniform", shape=(9,), low=0.1, high=0.1)) == {np.float32(0.1)}
    wide = draw("random-uniform", shape=(1000,), low=-3e38, high=3e38)
    assert np.isfinite(wide).all()
    assert wide.astype(np.float64).std() > 1e38
    assert set(draw("random-normal", shape=(9,), mean=2.0, deviation=0.0)) == {2.0}
    assert draw("random-normal", shape=(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 1e-4, 0.99999])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_dropout_leaves_out_its_share_and_keeps_the_mean(rate: float, dtype: Any) -> None:
    x = np.full((5, COUNT // 5 + 1), 3, dtype)
    y = draw("dropout", (x,), rate=rate)
    assert y.dtype == x.dtype
    share = np.mean(y == 0)
    assert share == pytest.approx(rate, abs=6 * (rate * (1 - rate) / x.size) ** 0.5)
    kept = np.unique(y[y != 0])
    assert len(kept) == 1 or rate > 0.9999
    tolerance = 2e-7 if dtype != ml_dtypes.bfloat16 else 2**-8
    np.testing.assert_allclose(kept.astype(np.float64), 3 / (1 - rate), rtol=tolerance)


def test_dropout_of_neighbours_is_independent() -> None:
    """Two elements may come from one word of random bits."""
    gone = draw("dropout", (np.ones(COUNT, np.float32),), rate=0.3) == 0
    for distance in (1, 2, 3):
        both = np.mean(gone[distance:] & gone[:-distance])
        assert both == pytest.approx(0.09, abs=0.005)


def test_dropout_of_nothing() -> None:
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(draw("dropout", (x,), rate=0.0), x)
    assert draw("dropout", (x[:0],), rate=0.5).shape == (0,)
    assert draw("dropout", (np.float32(1),), rate=0.5).shape == ()


def test_dropped_elements_are_0_whatever_they_were_and_have_no_gradient() -> None:
    x = np.full(1000, np.nan, np.float32)
    y = draw("dropout", (x,), rate=0.5, key=jax.random.key(0))
    assert 0 < np.sum(y == 0) < 1000
    (gradient,) = gradients("dropout", [x], rate=0.5)
    np.testing.assert_array_equal(gradient, np.where(y == 0, 0, np.float32(2)))


@pytest.mark.parametrize("probability", [1e-6, 0.25, 1 / 3, 1 - 1e-6])
def test_what_happens_with_a_probability(probability: float) -> None:
    happened = np.asarray(happens(KEY, probability, (1001, 999)))
    error = 6 * (probability * (1 - probability) / happened.size) ** 0.5
    assert happened.mean() == pytest.approx(probability, abs=error)
