"""Pooling in JAX: windows of every size, and to whom the gradient goes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from support.differentiated import apply, gradients, normal, reference
from support.harness import assert_close

WINDOWS: list[dict[str, Any]] = [
    {"size": (9,), "stride": (2,)},
    {"size": (20,)},
    {"size": (19,)},
    {"size": (11,), "stride": (3,), "padding": 4, "ceil": True},
]


@pytest.mark.parametrize("name", ["max-pool", "average-pool"])
@pytest.mark.parametrize("attributes", WINDOWS)
def test_large_windows(name: str, attributes: dict[str, Any]) -> None:
    x = normal(2, 3, 20, dtype=np.float64)
    found = np.asarray(jax.jit(lambda x: apply(name, [x], **attributes)[0])(x))
    assert_close(found, reference(name, [x], **attributes)[0], absolute=1e-12)
    direction, step = normal(2, 3, 20, seed=1, dtype=np.float64), 1e-6
    ahead, behind = (
        reference(name, [x + sign * step * direction], **attributes)[0].sum() for sign in (1, -1)
    )
    (gradient,) = gradients(name, [x], **attributes)
    assert (gradient * direction).sum() == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("size", [2, 10])
def test_integers_and_padding(size: int) -> None:
    x = np.full((1, 1, 12), np.iinfo(np.int64).min)
    x[0, 0, 5] = -7
    attributes: dict[str, Any] = {"size": (size,), "stride": (1,), "padding": 1}
    (found,) = jax.jit(lambda x: apply("max-pool", [x], **attributes))(x)
    np.testing.assert_array_equal(found, reference("max-pool", [x], **attributes)[0])


def test_equal_elements_share_the_gradient() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    (gradient,) = gradients("max-pool", [x], size=(2,))
    np.testing.assert_array_equal(gradient, np.full_like(x, 0.25))


def test_a_nan_is_the_largest() -> None:
    x = np.array([[[1.0, np.nan, 2.0, -np.inf]]])
    np.testing.assert_array_equal(apply("max-pool", [x], size=(2,))[0], [[[np.nan, 2.0]]])
