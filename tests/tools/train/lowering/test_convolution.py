"""Convolution in JAX: groups, kernels for each channel, and products in bf16."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from support.differentiated import apply, gradients, normal, reference, rounded
from support.harness import assert_close

#: x, w and attributes.
CALLS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 6, 9), (4, 3, 2), {"groups": 2, "stride": (2,), "padding": "same", "dilation": (2,)}),
    ((2, 4, 5, 6), (8, 1, 3, 2), {"groups": 4, "stride": (1, 2), "padding": ((2, 0), 1)}),
    ((2, 3, 70), (3, 1, 65), {"groups": 3}),
    ((1, 4, 4, 3, 5), (4, 2, 2, 2, 2), {"groups": 2, "dilation": (1, 2, 1)}),
    ((2, 2, 3), (2, 2, 3), {"stride": (1_000_000_000,)}),
    ((0, 4, 5), (4, 2, 3), {"groups": 2}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), CALLS)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_values_and_gradients(
    x: tuple[int, ...],
    w: tuple[int, ...],
    attributes: dict[str, Any],
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of the reference, and the gradients of XLA's own convolution, in either form."""
    given = {"given": ("bias",), "precision": precision, **attributes}
    inputs = [normal(*x), normal(*w, seed=1), normal(w[0], seed=2)]
    found = np.asarray(jax.jit(lambda *x: apply("conv", x, **given)[0])(*inputs))
    want = reference("conv", inputs, **given)[0]
    assert_close(found, want, absolute=2e-5)
    cotangent = normal(*want.shape, seed=3)
    ours = gradients("conv", inputs, [cotangent], **given)
    monkeypatch.setattr(jax, "default_backend", lambda: "another")
    for one, other in zip(ours, gradients("conv", inputs, [cotangent], **given), strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_the_gradients_in_bf16_are_of_rounded_operands() -> None:
    x, w, g = normal(2, 3, 8), normal(4, 3, 3, seed=1), normal(2, 4, 6, seed=2)
    of_x, of_w = gradients("conv", [x, w], [g], precision="bf16")
    x, w, g = map(rounded, (x, w, g))
    want_x, want_w = gradients("conv", [x, w], [g])
    np.testing.assert_allclose(of_x, want_x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_w, want_w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["conv", "conv-transpose"])
def test_bf16_is_summed_in_f32(name: str) -> None:
    x, w = np.ones((1, 1000, 3), ml_dtypes.bfloat16), np.ones((1, 1000, 1), ml_dtypes.bfloat16)
    w = w.swapaxes(0, 1) if name == "conv-transpose" else w
    found = np.asarray(jax.jit(lambda x, w: apply(name, [x, w])[0])(x, w))
    assert_close(found, reference(name, [x, w])[0])
    assert found[0, 0, 0] == 1000


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 4, 5), (4, 3, 4), {"stride": (3,), "output-padding": (2,), "padding": ((2, 1),)}),
        ((2, 4, 3, 2), (4, 1, 2, 3), {"groups": 2, "stride": (1, 2), "dilation": (2, 1)}),
        # What is cut off is more than a kernel's reach.
        ((2, 2, 6), (2, 2, 2), {"padding": ((2, 3),)}),
    ],
)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_transposed(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], precision: str
) -> None:
    """Its values are the reference's; its gradient by x is the convolution of the cotangent."""
    given = {"precision": precision, **attributes}
    inputs = [normal(*x), normal(*w, seed=1)]
    found = np.asarray(jax.jit(lambda *x: apply("conv-transpose", x, **given)[0])(*inputs))
    want = reference("conv-transpose", inputs, **given)[0]
    assert_close(found, want, absolute=2e-5)
    cotangent = normal(*want.shape, seed=3)
    of_x, of_w = gradients("conv-transpose", inputs, [cotangent], **given)
    given.pop("output-padding", None)
    back = reference("conv", [cotangent, inputs[1]], **given)[0]
    assert_close(of_x, back[tuple(map(slice, x))], absolute=2e-5)
    # As it is linear in w, so much is known of the gradient by it.
    x0, w0 = (a if precision == "f32" else rounded(a) for a in inputs)
    held = cotangent if precision == "f32" else rounded(cotangent)
    np.testing.assert_allclose((of_w * w0).sum(), (want * held).sum(), rtol=1e-4)
    np.testing.assert_allclose((of_x * x0).sum(), (want * held).sum(), rtol=1e-4)
