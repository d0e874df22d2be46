"""The probe's random numbers: their distributions, and that they are the same every time."""

from __future__ import annotations

import numpy as np

from sexpgpu.serve.draws import Draws

_COUNT = 100_000


def test_the_seed_determines_them() -> None:
    first, second, other = Draws(3), Draws(3), Draws(4)
    assert first.normal(9).tobytes() == second.normal(9).tobytes() != other.normal(9).tobytes()
    assert first.uniform(9).tobytes() == second.uniform(9).tobytes()


def test_uniform() -> None:
    values = Draws(0).uniform(_COUNT)
    assert values.dtype == np.float64
    assert 0 <= values.min() < 1e-3
    assert 1 - 1e-3 < values.max() < 1
    counts, _ = np.histogram(values, 10, (0, 1))
    assert abs(counts / _COUNT - 0.1).max() < 0.005


def test_normal() -> None:
    values = Draws(1).normal(_COUNT)
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02
    assert abs((abs(values) < 1).mean() - 0.6827) < 0.01
    assert abs((abs(values) < 2).mean() - 0.9545) < 0.01


def test_integers_reach_both_ends() -> None:
    values = Draws(2).integers(-2, 3, 1000)
    assert values.dtype == np.int64
    assert set(values.tolist()) == {-2, -1, 0, 1, 2}
    assert Draws(2).integers(7, 8, 3).tolist() == [7, 7, 7]


def test_choice_and_permutation() -> None:
    assert set(Draws(5).choice([1.5, -2.0], 100).tolist()) == {1.5, -2.0}
    order = Draws(6).permutation(50)
    assert sorted(order.tolist()) == list(range(50)) != order.tolist()
    assert Draws(7).permutation(0).tolist() == []
