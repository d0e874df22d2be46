"""Averages of the parameters: against NumPy, and what their warm-up is for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.tools.train.average import averaging_decay, start_averages, update

STEPS = 30


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def walk(dtype: str) -> list[dict[str, jax.Array]]:
    steps = np.random.default_rng(3).normal(size=(STEPS + 1, 2, 3)).cumsum(axis=0)
    return [{"w": jnp.array(w, dtype), "b": jnp.array(w[0], dtype)} for w in steps]


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 2e-5)])
def test_every_step(dtype: str, rtol: float, decay: float) -> None:
    first, *after = walk(dtype)
    averages = start_averages(first)
    expected = {name: np.asarray(array, np.float64) for name, array in first.items()}
    compiled = jax.jit(partial(update, decay=decay))
    for step, parameters in enumerate(after):
        averages = compiled(averages, parameters, step=step)
        kept = min(decay, (1 + step) / (10 + step))
        for name, array in parameters.items():
            expected[name] = kept * expected[name] + (1 - kept) * np.asarray(array, np.float64)
            assert averages[name].dtype == dtype
            np.testing.assert_allclose(averages[name], expected[name], rtol=rtol, atol=rtol)


def test_the_decay_warms_up() -> None:
    assert averaging_decay(0.99, 0) == pytest.approx(0.1)
    assert averaging_decay(0.99, 10) == pytest.approx(11 / 20)
    # (1 + t) / (10 + t) = 0.99 at t = 890
    assert averaging_decay(0.99, 889) < 0.99
    assert averaging_decay(0.99, 891) == averaging_decay(0.99, 10**9) == 0.99


def test_a_short_run_forgets_where_it_began() -> None:
    averages = start_averages({"w": jnp.array([1000.0])})
    for step in range(20):
        averages = update(averages, {"w": jnp.array([1.0])}, 0.999, step)
    # Plain averages would be at 0.999 ** 20 · 1000, which is 980.
    assert averages["w"][0] == pytest.approx(1.0, abs=1e-2)


def test_parameters_that_stand_still_are_their_own_averages() -> None:
    first = walk("float32")[0]
    averages = start_averages(first)
    for step in range(STEPS):
        averages = update(averages, first, 0.9, step)
    assert {n: a.tobytes() for n, a in averages.items()} == {
        n: a.tobytes() for n, a in first.items()
    }


def test_narrow_parameters_are_averaged_in_f32() -> None:
    parameters = {"w": jnp.array([1.0, 2.0], jnp.bfloat16)}
    averages = update(start_averages(parameters), {"w": parameters["w"] * 2}, 0.9, 5)
    assert averages["w"].dtype == jnp.float32
    np.testing.assert_allclose(averages["w"], [1.6, 3.2], rtol=1e-6)


def test_whole_numbers_have_no_average() -> None:
    parameters = {"n": jnp.array(3), "on": jnp.array(True), "w": jnp.array([1.0])}
    averages = start_averages(parameters)
    assert averages.keys() == {"w"}
    assert update(averages, parameters, 0.9, 0).keys() == {"w"}


def test_averages_start_as_copies() -> None:
    parameters = {"w": jnp.zeros(4, jnp.float32)}
    averages = start_averages(parameters)
    parameters["w"].delete()
    assert averages["w"].tolist() == [0.0] * 4
