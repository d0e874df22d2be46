"""Activations and losses of the prelude against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.layers import Layer, X, sigmoid, silu


def softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, 0))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "(mish x)": lambda x: x * np.tanh(softplus(x)),
    "(quick-gelu x)": lambda x: silu(1.702 * x) / 1.702,
    "(squared-relu x)": lambda x: np.where(x > 0, x * x, 0),
    # The numbers of the paper, to as many digits as it has.
    "(selu x)": lambda x: 1.0507 * np.where(x > 0, x, 1.67326 * (np.exp(x) - 1)),
    "(celu x :alpha 0.5)": lambda x: np.where(x > 0, x, 0.5 * (np.exp(x / 0.5) - 1)),
    "(hard-sigmoid x)": lambda x: np.minimum(np.maximum(x + 3, 0), 6) / 6,
    "(log-sigmoid x)": lambda x: np.log(sigmoid(x)),
    "(softsign x)": lambda x: x / (1 + abs(x)),
    "(soft-shrink x 0.5)": lambda x: np.where(x > 0.5, x - 0.5, np.where(x < -0.5, x + 0.5, 0)),
    "(hard-shrink x 0.5)": lambda x: np.where(abs(x) > 0.5, x, 0),
    "(glu x)": lambda x: x[..., :2] * sigmoid(x[..., 2:]),
    "(glu (transpose x) :axis 1)": lambda x: (x[..., :2] * sigmoid(x[..., 2:])).swapaxes(1, 2),
}


@pytest.mark.parametrize("call", ACTIVATIONS)
def test_activations(call: str) -> None:
    """Each of numbers on both sides of where it bends."""
    layer = Layer("(linear 4 4)", X, call=f"(let (x (m x)) {call})")
    layer.is_close_to(ACTIVATIONS[call](layer.x @ layer["w"] + layer["b"]))


def test_prelu() -> None:
    layer = Layer("(prelu)", X)
    layer.is_close_to(np.where(layer.x < 0, layer["slope"] * layer.x, layer.x))
    layer = Layer("(prelu :channels 4)", "x (list f32 4 3 2)")
    slope = layer["slope"].reshape(4, 1, 1)
    layer.is_close_to(np.where(layer.x < 0, slope * layer.x, layer.x))


TARGETS = "t (list f32 5 4)"


def test_huber() -> None:
    layer = Layer("(linear 4 4)", X, TARGETS, call="(huber (m x) t :delta 0.7)")
    distance = abs(layer.x @ layer["w"] + layer["b"] - layer.inputs[1])
    far = 0.7 * (distance - 0.35)
    layer.is_close_to(np.where(distance < 0.7, distance**2 / 2, far))


def test_binary_cross_entropy() -> None:
    call = "(binary-cross-entropy (* 5 (m x)) (sigmoid t) :weight 3)"
    layer = Layer("(linear 4 4)", X, TARGETS, call=call)
    p, target = sigmoid(5 * (layer.x @ layer["w"] + layer["b"])), sigmoid(layer.inputs[1])
    layer.is_close_to(-3 * target * np.log(p) - (1 - target) * np.log(1 - p))


def test_focal_loss() -> None:
    """As the paper has it, of a target that is 0 or 1: -α_t (1 - p_t)^γ log p_t."""
    call = "(focal-loss (m x) (cast (> t 0) f32) :gamma 3 :alpha 0.4)"
    layer = Layer("(linear 4 4)", X, TARGETS, call=call)
    p, hit = sigmoid(layer.x @ layer["w"] + layer["b"]), layer.inputs[1] > 0
    right, share = np.where(hit, p, 1 - p), np.where(hit, 0.4, 0.6)
    layer.is_close_to(-share * (1 - right) ** 3 * np.log(right))


def test_kl_divergence() -> None:
    call = "(kl-divergence (log-softmax (m x)) (log-softmax t))"
    layer = Layer("(linear 4 4)", X, TARGETS, call=call)

    def probabilities(x: Array) -> Array:
        e = np.exp(x)
        return np.asarray(e / e.sum(-1, keepdims=True))

    p = probabilities(layer.x @ layer["w"] + layer["b"])
    layer.is_close_to((p * np.log(p / probabilities(layer.inputs[1]))).sum(-1))


def test_cosine_similarity() -> None:
    layer = Layer("(linear 4 4)", X, TARGETS, call="(cosine-similarity (m x) t)")
    wanted = np.zeros((3, 5))
    for place in np.ndindex(3, 5):
        a, b = layer.x[place] @ layer["w"] + layer["b"], layer.inputs[1][place]
        wanted[place] = sum(a * b) / (math.hypot(*a) * math.hypot(*b))
    layer.is_close_to(wanted)
