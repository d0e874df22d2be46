"""The loss of a classifier in JAX: its gradient, and rows without a target."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.tools.train.lowering import loss
from support.differentiated import apply, gradients, normal, reference
from support.harness import assert_close

TARGETS = np.array([[0, 4, 2], [3, 3, 1]], np.int32)


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
def test_the_gradient_is_that_of_log_softmax(smoothing: float) -> None:
    logits, g = 3 * normal(2, 3, 5, dtype=np.float64), normal(2, 3, seed=1, dtype=np.float64)

    def plain(logits: jax.Array) -> jax.Array:
        scores = jax.nn.log_softmax(logits)
        picked = jnp.take_along_axis(scores, TARGETS[..., None], axis=-1)[..., 0]
        return -((1 - smoothing) * picked + smoothing * scores.mean(-1))

    want, pull = jax.vjp(plain, jnp.asarray(logits))
    found = apply("cross-entropy", [logits, TARGETS], smoothing=smoothing)[0]
    np.testing.assert_allclose(found, want, rtol=1e-12)
    (gradient,) = gradients("cross-entropy", [logits, TARGETS], [g], smoothing=smoothing)
    np.testing.assert_allclose(gradient, pull(jnp.asarray(g))[0], rtol=1e-10, atol=1e-14)


def test_ignored_rows_cost_nothing_even_where_they_are_nan() -> None:
    logits, targets = normal(3, 4), np.array([1, -1, 2])
    logits[1] = np.nan
    attributes: dict[str, Any] = {"ignore": -1, "smoothing": 0.1}
    found = apply("cross-entropy", [logits, targets], **attributes)[0]
    assert found[1] == 0
    assert np.isfinite(found).all()
    (gradient,) = gradients("cross-entropy", [logits, targets], **attributes)
    np.testing.assert_array_equal(gradient[1], 0)
    assert np.all(gradient[[0, 2]] != 0)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_target_that_is_no_class_costs_nan(dtype: Any) -> None:
    logits, targets = normal(4, 3), np.array([3, -1, np.iinfo(dtype).max, 2], dtype)
    found = np.asarray(apply("cross-entropy", [logits, targets])[0])
    np.testing.assert_array_equal(np.isnan(found), [True, True, True, False])


def test_large_and_infinite_logits() -> None:
    logits = np.array([[1e4, -1e4, 0.0], [-np.inf, 0.0, 0.0], [np.inf, 0.0, 0.0]], np.float32)
    targets = np.array([1, 0, 1], np.int32)
    for smoothing in (0.0, 0.5):
        inputs = [logits, targets]
        found = jax.jit(lambda *x: apply("cross-entropy", x, smoothing=smoothing)[0])(*inputs)  # noqa: B023
        with np.errstate(all="ignore"):
            want = reference("cross-entropy", inputs, smoothing=smoothing)[0]
        assert_close(np.asarray(found), want)


def test_nothing_as_large_as_the_logits_is_kept_for_the_gradient() -> None:
    logits, targets = jnp.asarray(normal(2, 3, 5)), jnp.asarray(TARGETS, jnp.int64)
    _, kept = loss._forward(0.0, logits, targets)
    assert [array is logits for array in kept if array.size >= logits.size] == [True]
