"""Resizing in JAX: what one position is made of, and gradients that add up."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from support.differentiated import apply, gradients, normal, reference
from support.harness import assert_close


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("size", [(8, 15), (2, 3), (7, 4)])
def test_the_gradient_is_the_transpose(mode: str, size: tuple[int, ...]) -> None:
    x, g = normal(2, 4, 5, dtype=np.float64), normal(2, *size, seed=1, dtype=np.float64)
    (y,) = jax.jit(lambda x: apply("resize", [x], size=size, mode=mode))(x)
    assert_close(np.asarray(y), reference("resize", [x], size=size, mode=mode)[0], absolute=1e-12)
    (back,) = gradients("resize", [x], [g], size=size, mode=mode)
    assert float((y * g).sum()) == pytest.approx(float((x * back).sum()))


def test_a_nan_spreads_to_its_neighbours_alone() -> None:
    x = np.zeros((1, 8))
    x[0, 2] = np.nan
    found = np.asarray(apply("resize", [x], size=(16,))[0])
    np.testing.assert_array_equal(found, reference("resize", [x], size=(16,))[0])
    assert np.isnan(found).sum() == 4
