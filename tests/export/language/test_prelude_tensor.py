"""Functions of tensors in the prelude against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.layers import BATCH, Layer, X

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "(l2-normalize x)": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
    "(l2-normalize (* 0 x) :axis 1)": np.zeros_like,
    "(standard-deviation x :axis 1 :correction 1)": lambda x: np.std(x, 1, ddof=1),
    "(outer x x)": lambda x: np.einsum("bti,btj->btij", x, x),
    "(repeat-interleave x 3 :axis 1)": lambda x: np.repeat(x, 3, 1),
    "(flatten x)": lambda x: x.reshape(BATCH, -1),
    "(diagonal (matmul x (transpose x)))": lambda x: (x * x).sum(-1),
    "(quantile x 0.3)": lambda x: np.quantile(x, 0.3, -1),
    "(quantile x 0.25 :axis 1)": lambda x: np.quantile(x, 0.25, 1),
    "(quantile x 1)": lambda x: x.max(-1),
    "(per-record (tensor (list (list 1.0) (list 2.0))) x)": lambda x: np.tile(
        [[[1.0], [2.0]]], (BATCH, 1, 1)
    ),
    "(median x)": lambda x: np.median(x, -1),
    "(median x :axis 1)": lambda x: np.median(x, 1),
    "(cast (bucketize x (tensor (list -1.0 0.0 0.5))) f32)": lambda x: np.digitize(
        x, [-1, 0, 0.5]
    ).astype(np.float64),
}


@pytest.mark.parametrize("call", FUNCTIONS)
def test_functions(call: str) -> None:
    layer = Layer("(linear 4 4)", X, call=f"(let (x (m x)) {call})")
    layer.is_close_to(FUNCTIONS[call](layer.x @ layer["w"] + layer["b"]))


def test_nan_to_num() -> None:
    call = (
        "(let (x (m x)) (nan-to-num (concat (* 1e38 (* 1e38 x)) (log x)) :value 7 :low -1 :high 2))"
    )
    layer = Layer("(linear 4 4)", X, call=call)
    x = layer.x @ layer["w"] + layer["b"]
    with np.errstate(invalid="ignore"):
        logarithm = np.where(x < 0, 7, np.clip(np.log(x), -1, 2))
    layer.is_close_to(np.concatenate([np.where(x < 0, -1, 2), logarithm], -1))


def test_instance_norm() -> None:
    layer = Layer("(instance-norm 4 :epsilon 0.1)", "x (list f32 4 6 5)")
    mean, variance = layer.x.mean((2, 3), keepdims=True), layer.x.var((2, 3), keepdims=True)
    scale, bias = (layer[f"norm.{name}"].reshape(4, 1, 1) for name in ("scale", "bias"))
    layer.is_close_to((layer.x - mean) / np.sqrt(variance + 0.1) * scale + bias)
    assert layer.found.shape == (BATCH, 4, 6, 5)


def test_squared_distances() -> None:
    layer = Layer("(linear 4 4)", X, call="(squared-distances (m x) (slice x :axis 1 :to 2))")
    y = layer.x @ layer["w"] + layer["b"]
    wanted = ((y[:, :, None] - layer.x[:, None, :2]) ** 2).sum(-1)
    layer.is_close_to(wanted)
