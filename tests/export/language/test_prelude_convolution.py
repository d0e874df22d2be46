"""Transposed convolutions of the prelude against NumPy written out by hand."""

from __future__ import annotations

import numpy as np

from support.layers import BATCH, Layer


def test_conv1d_transpose() -> None:
    """A stride of the kernel's size: kernels lie side by side."""
    layer = Layer("(conv1d-transpose 4 6 3 :stride 3 :groups 2)", "x (list f32 4 5)")
    x, w = layer.x.reshape(BATCH, 2, 2, 5), layer["w"].reshape(2, 2, 3, 3)
    made = np.einsum("bgci,gcok->bgoik", x, w).reshape(BATCH, 6, 15)
    layer.is_close_to(made + layer["b"][:, None])


def test_conv1d_transpose_with_padding() -> None:
    options = ":stride 2 :padding 1 :output-padding 1 :dilation 2 :bias false"
    layer = Layer(f"(conv1d-transpose 4 3 2 {options})", "x (list f32 4 5)")
    assert list(layer.weights) == ["w"]
    whole = np.zeros((BATCH, 3, 12))
    for position in range(5):
        for tap in range(2):
            at = 2 * position + 2 * tap
            whole[:, :, at] += layer.x[:, :, position] @ layer["w"][:, :, tap]
    layer.is_close_to(whole[:, :, 1:-1])


def test_conv2d_transpose() -> None:
    layer = Layer("(conv2d-transpose 4 3 (list 2 3) :stride (list 2 3))", "x (list f32 4 3 2)")
    made = np.einsum("bcij,cokl->boikjl", layer.x, layer["w"]).reshape(BATCH, 3, 6, 6)
    layer.is_close_to(made + layer["b"][:, None, None])
    assert Layer("(conv2d-transpose 4 2 3)", "x (list f32 4 3 2)").found.shape == (BATCH, 2, 5, 4)


def test_conv3d() -> None:
    layer = Layer("(conv3d 4 2 (list 2 3 1) :stride (list 1 2 1))", "x (list f32 4 3 5 2)")
    wanted = np.zeros((BATCH, 2, 2, 2, 2))
    for i, j, k in np.ndindex(2, 2, 2):
        window = layer.x[:, :, i : i + 2, 2 * j : 2 * j + 3, k]
        wanted[..., i, j, k] = np.einsum("bcij,ocij->bo", window, layer["w"][..., 0])
    layer.is_close_to(wanted + layer["b"][:, None, None, None])
    padded = Layer("(conv3d 4 2 3 :padding 1 :groups 2 :bias false)", "x (list f32 4 3 5 2)")
    assert list(padded.weights) == ["w"]
    assert padded.weights["w"].shape == (2, 2, 3, 3, 3)
    assert padded.found.shape == (BATCH, 2, 3, 5, 2)


def test_conv3d_transpose() -> None:
    layer = Layer("(conv3d-transpose 4 3 2 :stride 2)", "x (list f32 4 3 2 1)")
    made = np.einsum("bcijk,coxyz->boixjykz", layer.x, layer["w"]).reshape(BATCH, 3, 6, 4, 2)
    layer.is_close_to(made + layer["b"][:, None, None, None])
    one = Layer("(conv3d-transpose 4 2 (list 1 2 3))", "x (list f32 4 3 2 1)")
    assert one.found.shape == (BATCH, 2, 3, 3, 3)
