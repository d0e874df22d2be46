"""Layers of state spaces against NumPy, a step at a time."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.layers import BATCH, Layer, X, silu


def depthwise(x: Array, w: Array, b: Array | float, dilation: int) -> Array:
    """Each position and those before it, [positions, channels], by the kernel [channels, size]."""
    made = np.zeros(x.shape)
    size = w.shape[-1]
    for position in range(len(x)):
        for tap in range(size):
            at = position - (size - 1 - tap) * dilation
            if at >= 0:
                made[position] += w[:, tap] * x[at]
    return np.asarray(made + b)


def softplus(x: Array) -> Array:
    return np.asarray(np.log1p(np.exp(-abs(x))) + np.maximum(x, 0))


def scanned(x: Array, step: Array, a: Array, b: Array, c: Array) -> Array:
    """The selective scan of one record, x and step [positions, channels]."""
    state, made = np.zeros(a.shape), np.zeros(x.shape)
    for position in range(len(x)):
        for channel in range(x.shape[1]):
            kept = np.exp(step[position, channel] * a[channel]) * state[channel]
            added = step[position, channel] * x[position, channel] * b[position]
            state[channel] = kept + added
            made[position, channel] = state[channel] @ c[position]
    return made


@pytest.mark.parametrize(
    ("options", "call", "dilation"),
    [("", "(m x)", 1), (":dilation 2", "(m x)", 2), (":dilation 2", "(m x :dilation 3)", 3)],
)
def test_causal_depthwise_conv(options: str, call: str, dilation: int) -> None:
    layer = Layer(f"(causal-depthwise-conv 4 2 {options})", X, call=call)
    made = [depthwise(x, layer["w"][:, 0], layer["b"], dilation) for x in layer.x]
    layer.is_close_to(np.stack(made))


def test_causal_depthwise_conv_without_bias() -> None:
    layer = Layer("(causal-depthwise-conv 4 2 :bias false)", X)
    assert list(layer.weights) == ["w"]
    layer.is_close_to(np.stack([depthwise(x, layer["w"][:, 0], 0.0, 1) for x in layer.x]))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_causal_convolution(size: int) -> None:
    layer = Layer(f"(linear {size} 4)", X, call="(causal-convolution x (transpose (get m :w)))")
    kernel = layer["w"].T
    wanted = np.zeros(layer.x.shape)
    for t in range(5):
        for s in range(min(t + 1, size)):
            wanted[:, t] += kernel[:, s] * layer.x[:, t - s]
    layer.is_close_to(wanted)


def test_selective_scan() -> None:
    fields = ("step (list f32 5 4)", "b (list f32 5 3)", "c (list f32 5 3)")
    layer = Layer(
        "(linear 4 3)",
        X,
        *fields,
        call="(selective-scan x (softplus step) (neg (exp (get m :w))) b c)",
    )
    x, step, b, c = (array.astype(np.float64) for array in layer.inputs)
    a = -np.exp(layer["w"])
    made = [scanned(x[i], softplus(step[i]), a, b[i], c[i]) for i in range(BATCH)]
    layer.is_close_to(np.stack(made))


@pytest.mark.parametrize("turned", [False, True])
def test_mamba(turned: bool) -> None:
    options = ":expand 3 :state 5 :kernel 2 :step-rank 2"
    layer = Layer(f"(mamba 4 {options} :transposed {str(turned).lower()})", X)

    def product(x: Array, name: str) -> Array:
        w = layer[f"{name}.w"]
        return np.asarray(x @ (w.T if turned else w))

    made = []
    for record in layer.x:
        x, gate = np.split(product(record, "in"), 2, axis=-1)
        x = silu(depthwise(x, layer["conv.w"][:, 0], layer["conv.b"], 1))
        rank, b, c = np.split(product(x, "select"), [2, 7], axis=-1)
        step = softplus(product(rank, "step") + layer["step-bias"])
        y = scanned(x, step, -np.exp(layer["log-a"]), b, c) + layer["skip"] * x
        made.append(product(y * silu(gate), "out"))
    layer.is_close_to(np.stack(made))


def test_a_mamba_begins_with_steps_between_a_thousandth_and_a_tenth() -> None:
    from support.programs import traced

    _, weights = traced(f"(def record (fields :{X}))(def model (mamba 4))")
    steps = softplus(weights["step-bias"].astype(np.float64))
    assert (steps > 0.00099).all()
    assert (steps < 0.0955).all()
    decays = np.exp(weights["log-a"].astype(np.float64))
    np.testing.assert_allclose(decays, np.broadcast_to(np.arange(1.0, 17), (8, 16)), 1e-6)
    assert weights["step.w"].shape == (1, 8)
