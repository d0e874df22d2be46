"""Rotary embedding in JAX: from tables and without them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from sexpgpu.tools.train.lowering import rotary
from support.differentiated import apply, gradients, normal, reference
from support.harness import assert_close

ATTRIBUTES: list[dict[str, Any]] = [
    {},
    {"length": 7},
    {"dimensions": 4, "interleaved": True},
    {"scaling": "yarn", "factor": 4.0, "base": 10.0, "original": 64, "beta-fast": 8.0},
]


@pytest.mark.parametrize("limit", [0, 2**20])
@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_tables_change_nothing(
    limit: int, attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotary, "_LARGEST_TABLE", limit)
    x = normal(2, 3, 5, 6)
    positions = np.array([[0, 1, 2, 90, 6], [4, -3, 2, 1, 0]], np.int32)
    for inputs, given in (([x], ()), ([x, positions], ("positions",))):
        found = jax.jit(lambda *x: apply("rotary", x, given=given, **attributes)[0])(*inputs)  # noqa: B023
        assert_close(np.asarray(found), reference("rotary", inputs, given=given, **attributes)[0])


def test_the_gradient_turns_back() -> None:
    x = normal(2, 5, 6, dtype=np.float64)
    (y,) = apply("rotary", [x])
    (back,) = gradients("rotary", [x], [np.asarray(y)])
    np.testing.assert_allclose(back, x, rtol=1e-12, atol=1e-13)


def test_nothing_is_turned() -> None:
    x = normal(2, 5, 6)
    np.testing.assert_array_equal(np.asarray(apply("rotary", [x], dimensions=0)[0]), x)
