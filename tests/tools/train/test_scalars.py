"""Scalars of a device: read as plain numbers, and not waited for."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.tools.train.scalars import Readings, is_ready, read
from support.later import Later


def test_scalars_of_every_kind_become_plain_numbers() -> None:
    numbers = read({"a": 1, "b": np.float32(0.5), "c": np.asarray(3, "int64"), "d": np.True_})
    assert numbers == {"a": 1, "b": 0.5, "c": 3, "d": 1}
    assert list(read({"b": 1, "learning_rate": 2, "a": 3, "loss": 4})) == [
        *("loss", "learning_rate", "b", "a")
    ]
    assert [type(number) for number in numbers.values()] == [int, float, int, int]


def test_scalars_of_jax_become_plain_numbers() -> None:
    jnp = pytest.importorskip("jax.numpy")
    values = {"a": jnp.float32(0.1), "b": jnp.int32(7), "c": jnp.asarray(1.5, "bfloat16")}
    numbers = read(values)
    assert numbers == {"a": float(np.float32(0.1)), "b": 7, "c": 1.5}
    assert is_ready(values)


def test_the_newest_that_are_there_are_taken_once() -> None:
    readings = Readings()
    scalars = [Later(float(step)) for step in range(8)]
    for step, scalar in enumerate(scalars):
        readings.add(step, {"loss": scalar, "lr": 0.1})
    assert readings.take(4) == []
    for scalar in scalars[:5]:
        scalar.arrive()
    assert [step for step, _ in readings.take(3)] == [2, 3, 4]
    assert readings.take(3) == []
    scalars[5].arrive()
    assert readings.take(3) == [(5, {"loss": 5.0, "lr": 0.1})]
    assert sum(scalar.waits for scalar in scalars) == 0


def test_a_device_that_is_never_there_costs_no_memory() -> None:
    readings = Readings()
    for step in range(5000):
        readings.add(step, {"loss": Later(1.0)})
    assert readings.take(1) == []
    readings.add(5000, {"loss": 1.0})
    assert len(readings._steps) == 1024
