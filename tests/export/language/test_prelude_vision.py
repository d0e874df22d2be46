"""The layers of vision against NumPy written out by hand, by the reference and by ONNX."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.layers import BATCH, Layer, sigmoid, silu

IMAGE = "x (list f32 4 6 5)"


def conv(x: Array, w: Array, stride: int = 1, padding: int = 0) -> Array:
    """Window by window, the kernel's share of the channels in each of its groups."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    out, share, height, width = w.shape
    groups = x.shape[1] // share
    rows = range(0, x.shape[2] - height + 1, stride)
    columns = range(0, x.shape[3] - width + 1, stride)
    y = np.zeros((len(x), out, len(rows), len(columns)))
    for o in range(out):
        first = o // (out // groups) * share
        for i, top in enumerate(rows):
            for j, left in enumerate(columns):
                window = x[:, first : first + share, top : top + height, left : left + width]
                y[:, o, i, j] = (window * w[o]).sum((1, 2, 3))
    return y


def column(v: Array) -> Array:
    return v[:, None, None]


def conv_norm(layer: Layer, path: str, x: Array, stride: int = 1, epsilon: float = 1e-5) -> Array:
    w = layer[f"{path}conv.w"]
    y = conv(x, w, stride, w.shape[2] // 2)
    scale, bias, mean, variance = (
        column(layer[f"{path}norm.{name}"]) for name in ("scale", "bias", "mean", "variance")
    )
    return (y - mean) / np.sqrt(variance + epsilon) * scale + bias


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def up_to_six(x: Array) -> Array:
    return np.clip(x, 0, 6)


def test_conv_norm() -> None:
    layer = Layer("(conv-norm 4 3 3)", IMAGE)
    assert "conv.b" not in layer.weights
    layer.is_close_to(relu(conv_norm(layer, "", layer.x)))


def test_conv_norm_with_other_options() -> None:
    options = ":stride 2 :groups 2 :activation nil :epsilon 0.1"
    layer = Layer(f"(conv-norm 4 6 3 {options})", IMAGE)
    layer.is_close_to(conv_norm(layer, "", layer.x, 2, 0.1))


def test_global_average_pool() -> None:
    layer = Layer("(linear 4 2)", IMAGE, call="(m (global-average-pool x))")
    layer.is_close_to(layer.x.mean((2, 3)) @ layer["w"] + layer["b"])


@pytest.mark.parametrize(("out", "stride"), [(4, 1), (4, 2), (8, 1), (8, 2)])
def test_bottleneck(out: int, stride: int) -> None:
    """What comes in is added as it is only where it has the shape of what comes out."""
    layer = Layer(f"(bottleneck 4 {out} :stride {stride} :reduction 2)", IMAGE)
    x = layer.x
    y = relu(conv_norm(layer, "reduce.", x))
    assert y.shape == (BATCH, out // 2, 6, 5)
    y = relu(conv_norm(layer, "spatial.", y, stride))
    y = conv_norm(layer, "expand.", y)
    same = (out, stride) == (4, 1)
    assert same == ("shortcut.conv.w" not in layer.weights)
    layer.is_close_to(relu(y + (x if same else conv_norm(layer, "shortcut.", x, stride))))


def test_images_and_sequences() -> None:
    layer = Layer("(linear 4 2)", IMAGE, call="(m (image-to-sequence x))")
    places = layer.x.reshape(BATCH, 4, 30).transpose(0, 2, 1)
    layer.is_close_to(places @ layer["w"] + layer["b"])
    layer = Layer("(linear 5 2)", IMAGE, call="(m (sequence-to-image (image-to-sequence x) 6 5))")
    layer.is_close_to(layer.x @ layer["w"] + layer["b"])


def test_patch_embedding() -> None:
    """The last row of patches would reach outside, and is left out."""
    layer = Layer("(patch-embedding 4 7 2)", IMAGE)
    wanted = np.zeros((BATCH, 6, 7))
    for i in range(3):
        for j in range(2):
            patch = layer.x[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].reshape(BATCH, -1)
            wanted[:, 2 * i + j] = patch @ layer["conv.w"].reshape(7, -1).T + layer["conv.b"]
    layer.is_close_to(wanted)


def test_prepend() -> None:
    call = "(prepend (take (get m :w) 1) x)"
    layer = Layer("(linear 4 4 :bias false)", "x (list f32 5 4)", call=call)
    first = np.broadcast_to(layer["w"][1], (BATCH, 1, 4))
    layer.is_close_to(np.concatenate([first, layer.x], 1))


def test_channel_norm() -> None:
    layer = Layer("(channel-norm 4 :epsilon 0.1)", IMAGE)
    x = layer.x
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 0.1)
    layer.is_close_to(normal * column(layer["norm.scale"]) + column(layer["norm.bias"]))


def test_upsample() -> None:
    layer = Layer("(conv2d 4 3 1)", IMAGE, call="(m (upsample x 2 :mode :nearest))")
    larger = layer.x.repeat(2, 2).repeat(2, 3)
    layer.is_close_to(
        np.einsum("oc,bchw->bohw", layer["w"][..., 0, 0], larger) + column(layer["b"])
    )


def test_join_patches() -> None:
    call = "(join-patches (m x) 2 6 6 3)"
    layer = Layer("(linear 18 18 :bias false)", "x (list f32 4 18)", call=call)
    patches = (layer.x @ layer["w"]).reshape(BATCH, 2, 2, 3, 3, 2)
    wanted = np.zeros((BATCH, 2, 6, 6))
    for i in range(6):
        for j in range(6):
            wanted[:, :, i, j] = patches[:, i // 3, j // 3, i % 3, j % 3]
    layer.is_close_to(wanted)


def test_timestep_embedding() -> None:
    layer = Layer("(timestep-embedding 5 :waves 4)", "t f32", call="(m (* t 10.0))")
    angles = 10 * layer.x[:, None] * np.array([1, 10000.0**-0.5])
    waves = np.concatenate([np.cos(angles), np.sin(angles)], 1)
    inner = silu(waves @ layer["mlp.up.w"] + layer["mlp.up.b"])
    layer.is_close_to(inner @ layer["mlp.down.w"] + layer["mlp.down.b"])


def test_modulate() -> None:
    fields = ("x (list f32 5 4)", "y (list f32 1 4)")
    layer = Layer("(linear 4 4)", *fields, call="(modulate x y (m y))")
    x, y = (array.astype(np.float64) for array in layer.inputs)
    layer.is_close_to(x * (1 + y @ layer["w"] + layer["b"]) + y)


def test_squeeze_excite() -> None:
    layer = Layer("(squeeze-excite 4 3)", IMAGE)
    inner = relu(layer.x.mean((2, 3)) @ layer["mlp.up.w"] + layer["mlp.up.b"])
    gate = sigmoid(inner @ layer["mlp.down.w"] + layer["mlp.down.b"])
    layer.is_close_to(layer.x * gate[:, :, None, None])


@pytest.mark.parametrize("out", [4, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_inverted_residual(out: int, stride: int) -> None:
    layer = Layer(f"(inverted-residual 4 {out} :stride {stride} :expansion 2)", IMAGE)
    y = up_to_six(conv_norm(layer, "expand.", layer.x))
    assert y.shape == (BATCH, 8, 6, 5)
    y = conv_norm(layer, "project.", up_to_six(conv_norm(layer, "spatial.", y, stride)))
    layer.is_close_to(y + layer.x if (out, stride) == (4, 1) else y)


def test_inverted_residual_with_other_options() -> None:
    options = ":size 5 :expansion 1 :squeeze 3 :activation relu :epsilon 0.1"
    layer = Layer(f"(inverted-residual 4 3 {options})", IMAGE)
    assert not any(path.startswith("expand") for path in layer.weights)
    y = relu(conv_norm(layer, "spatial.", layer.x, epsilon=0.1))
    inner = relu(y.mean((2, 3)) @ layer["squeeze.mlp.up.w"] + layer["squeeze.mlp.up.b"])
    gate = sigmoid(inner @ layer["squeeze.mlp.down.w"] + layer["squeeze.mlp.down.b"])
    y = conv_norm(layer, "project.", y * gate[:, :, None, None], epsilon=0.1)
    layer.is_close_to(y)


def test_inverted_residual_of_mobilenet_v3() -> None:
    options = ":width 6 :squeeze 3 :activation hard-swish :squeeze-activation relu"
    layer = Layer(f"(inverted-residual 4 4 {options} :gate hard-sigmoid)", IMAGE)
    assert layer["expand.conv.w"].shape == (6, 4, 1, 1)

    def hard_swish(x: Array) -> Array:
        return x * np.clip(x / 6 + 0.5, 0, 1)

    y = hard_swish(conv_norm(layer, "expand.", layer.x))
    y = hard_swish(conv_norm(layer, "spatial.", y))
    inner = relu(y.mean((2, 3)) @ layer["squeeze.mlp.up.w"] + layer["squeeze.mlp.up.b"])
    inner = inner @ layer["squeeze.mlp.down.w"] + layer["squeeze.mlp.down.b"]
    y = y * np.clip(inner / 6 + 0.5, 0, 1)[:, :, None, None]
    layer.is_close_to(layer.x + conv_norm(layer, "project.", y))


def test_windows_there_and_back() -> None:
    """What only windows see is seen in its window, and comes back to its place."""
    image = "x (list f32 4 6 3)"
    layer = Layer(
        "(linear 12 5)", image, call="(m (reshape (window-partition x 2) (list -1 6 12)))"
    )
    windows = [
        layer.x[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].reshape(BATCH, 12)
        for row in range(2)
        for column in range(3)
    ]
    layer.is_close_to(np.stack(windows, 1) @ layer["w"] + layer["b"])
    layer = Layer("(linear 3 2)", image, call="(m (window-reverse (window-partition x 2) 4 6))")
    layer.is_close_to(layer.x @ layer["w"] + layer["b"])


@pytest.mark.parametrize("shape", [(6,), (3, 2, 4)])
def test_sequences_and_volumes_are_pooled_and_upsampled(shape: tuple[int, ...]) -> None:
    field = "x (list f32 2 " + " ".join(map(str, shape)) + ")"
    axes = tuple(range(2, 2 + len(shape)))
    layer = Layer("(linear 2 3)", field, call="(m (global-average-pool x))")
    layer.is_close_to(layer.x.mean(axes) @ layer["w"] + layer["b"])
    layer = Layer("(linear 1 1)", field, call="(* (max (get m :b)) (upsample x 3 :mode :nearest))")
    wanted = layer.x * layer["b"][0]
    for axis in axes:
        wanted = wanted.repeat(3, axis)
    layer.is_close_to(wanted)
