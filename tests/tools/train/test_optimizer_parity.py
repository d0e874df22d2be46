"""Optimizers against PyTorch's own, where it is installed and defines them as we do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from support.recipes import Arrays, descended, drawn

torch = pytest.importorskip("torch")

STEPS = 20
#: Adafactor of PyTorch factors every matrix, and ours those of 128 by 128 and larger.
SHAPES = {"w": (130, 140), "b": (140,)}


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def matrices_decay(by: float, w: Any, b: Any) -> list[dict[str, Any]]:
    return [{"params": [w], "weight_decay": by}, {"params": [b], "weight_decay": 0.0}]


CASES: list[tuple[str, Callable[[Any, Any], Any]]] = [
    (
        "(sgd :lr 0.1 :weight-decay 0.2)",
        lambda w, b: torch.optim.SGD(matrices_decay(0.2, w, b), lr=0.1),
    ),
    (
        "(momentum :lr 0.05 :momentum 0.8 :weight-decay 0.2)",
        lambda w, b: torch.optim.SGD(matrices_decay(0.2, w, b), lr=0.05, momentum=0.8),
    ),
    (
        "(momentum :lr 0.05 :nesterov true)",
        lambda w, b: torch.optim.SGD([w, b], lr=0.05, momentum=0.9, nesterov=True),
    ),
    (
        "(adam :lr 0.02 :beta2 0.99 :epsilon 1e-6)",
        lambda w, b: torch.optim.Adam([w, b], lr=0.02, betas=(0.9, 0.99), eps=1e-6),
    ),
    (
        "(adamw :lr 0.02 :beta1 0.8 :weight-decay 0.3)",
        lambda w, b: torch.optim.AdamW(matrices_decay(0.3, w, b), lr=0.02, betas=(0.8, 0.999)),
    ),
    (
        # PyTorch's rate is at most 1/√t, and its first ε stands under the root.
        "(adafactor :lr 0.1)",
        lambda w, b: torch.optim.Adafactor([w, b], lr=0.1, eps=(1e-15, 1e-3)),
    ),
]


@pytest.mark.parametrize(("text", "theirs"), CASES, ids=[text for text, _ in CASES])
def test_twenty_steps(text: str, theirs: Callable[[Any, Any], Any]) -> None:
    parameters, *gradients = drawn(SHAPES, STEPS + 1)
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in parameters.items()}
    optimizer = theirs(tensors["w"], tensors["b"])
    rtol = 1e-6 if "adafactor" in text else 1e-9
    for found, gradient in zip(
        descended(f":optimizer {text}", parameters, gradients), gradients, strict=True
    ):
        put(tensors, gradient)
        optimizer.step()
        for name, array in found.items():
            expected = tensors[name].detach().numpy()
            np.testing.assert_allclose(array, expected, rtol=rtol, atol=rtol)


def test_clipping_by_the_norm() -> None:
    parameters, *gradients = drawn(SHAPES, STEPS + 1)
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in parameters.items()}
    optimizer = torch.optim.Adam(tensors.values(), lr=0.01)
    items = ":optimizer (adam :lr 0.01) :clip 20"
    for found, gradient in zip(descended(items, parameters, gradients), gradients, strict=True):
        put(tensors, gradient)
        torch.nn.utils.clip_grad_norm_(tensors.values(), 20.0)
        optimizer.step()
        for name, array in found.items():
            # PyTorch adds 1e-6 to the norm.
            expected = tensors[name].detach().numpy()
            np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-6)


def put(tensors: dict[str, Any], gradient: Arrays) -> None:
    for name, array in gradient.items():
        tensors[name].grad = torch.tensor(array)
