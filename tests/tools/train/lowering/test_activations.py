"""Slopes of activations and of other piecewise functions: at the kinks, and far from 0."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.tools.train.lowering.compute import compute_node
from support.harness import single

FAR = (30.0, 100.0, 1e4, 1e13, 1e20, 3e38)


def slopes(name: str, points: Any, dtype: Any = np.float32, **attributes: Any) -> Any:
    """The slope at each of the points."""
    x = np.asarray(points, dtype)
    node = single(name, [x], **attributes)[1]

    def total(array: jax.Array) -> jax.Array:
        return compute_node(node, [array], 1, jax.random.key(0))[0].sum()

    return np.asarray(jax.jit(jax.grad(total))(jnp.asarray(x)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "attributes", "below", "above"),
    [
        ("sigmoid", {}, 0, 0),
        ("softplus", {}, 0, 1),
        ("relu", {}, 0, 1),
        ("leaky-relu", {"slope": 0.25}, 0.25, 1),
        ("elu", {"alpha": 2.0}, 0, 1),
        ("silu", {}, 0, 1),
        ("gelu", {}, 0, 1),
        ("gelu", {"tanh": True}, 0, 1),
        ("hard-swish", {}, 0, 1),
        ("tanh", {}, 0, 0),
        ("erf", {}, 0, 0),
    ],
)
def test_slopes_far_from_zero_are_those_of_the_asymptotes(
    name: str, attributes: dict[str, Any], below: float, above: float, dtype: Any
) -> None:
    far = np.asarray(FAR)
    found = slopes(name, [-far, far], dtype, **attributes)
    np.testing.assert_allclose(found[0], below, atol=1e-10)
    np.testing.assert_allclose(found[1], above, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "attributes", "points", "want"),
    [
        ("relu", {}, [0.0, -0.0], [0, 0]),
        ("leaky-relu", {"slope": 0.25}, [0.0], [1]),
        ("elu", {}, [0.0, -0.0], [1, 1]),
        ("abs", {}, [0.0], [0]),
        ("softplus", {}, [0.0], [0.5]),
        ("clip", {"low": -1.0, "high": 3.0}, [-2.0, -1.0, 3.0, 4.0], [0, 1, 1, 0]),
        ("sign", {}, [0.0, 2.0], [0, 0]),
        ("round", {}, [0.5, 1.2], [0, 0]),
    ],
)
def test_slopes_at_kinks(
    name: str, attributes: dict[str, Any], points: list[float], want: list[float]
) -> None:
    np.testing.assert_allclose(slopes(name, points, **attributes), want, rtol=1e-6)
