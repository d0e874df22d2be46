"""Every layer of the prelude against NumPy written out by hand, by the reference and by ONNX."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.language.models import ModelClass
from support.layers import BATCH, Layer, X, gelu, layer_normal, rms_normal, silu, softmax
from support.programs import program, program_error, traced

IMAGE = "x (list f32 4 6 5)"


def test_every_layer_is_tested() -> None:
    """A test of the files beside this one names it."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_prelude*.py"))
    top = program("(def model (linear 1 1))").environment.top
    layers = [name for name, value in top.values.items() if isinstance(value, ModelClass)]
    assert len(layers) > 15
    assert [name for name in layers if not re.search(rf"(?<![\w-]){name}(?![\w-])", tests)] == []


def test_linear() -> None:
    layer = Layer("(linear 4 3)", X)
    layer.is_close_to(layer.x @ layer["w"] + layer["b"])


def test_linear_without_bias_and_transposed() -> None:
    layer = Layer("(linear 4 3 :bias false)", X)
    assert list(layer.weights) == ["w"]
    layer.is_close_to(layer.x @ layer["w"])
    layer = Layer("(linear 4 3 :transposed true)", X)
    assert layer["w"].shape == (3, 4)
    layer.is_close_to(layer.x @ layer["w"].T + layer["b"])


def test_embedding() -> None:
    layer = Layer("(embedding 5 3)", "x (list i32 4)")
    layer.is_close_to(layer["w"][layer.inputs[0]])


def test_layer_norm() -> None:
    layer = Layer("(layer-norm 4 :epsilon 0.1)", X)
    layer.is_close_to(layer_normal(layer.x, 0.1) * layer["scale"] + layer["bias"])


def test_layer_norm_without_bias() -> None:
    layer = Layer("(layer-norm 4 :bias false)", X)
    assert list(layer.weights) == ["scale"]
    layer.is_close_to(layer_normal(layer.x) * layer["scale"])


def test_rms_norm() -> None:
    layer = Layer("(rms-norm 4 :epsilon 0.1)", X)
    layer.is_close_to(rms_normal(layer.x, 0.1) * layer["scale"])


def test_rms_norm_with_an_offset_begins_as_zero() -> None:
    layer = Layer("(rms-norm 4 :offset 1.0)", X)
    layer.is_close_to(rms_normal(layer.x, 1e-6) * (1 + layer["scale"]))
    _, weights = traced(
        "(def record (fields :x (list f32 4)))\n"
        "(defmodel net () (parts m (rms-norm 4 :offset 1)) (apply (x) (m x)))\n"
        "(def model (net))"
    )
    assert not weights["m.scale"].any()


def test_group_norm() -> None:
    layer = Layer("(group-norm 2 4 :epsilon 0.1)", IMAGE)
    groups = layer.x.reshape(BATCH, 2, 2 * 6 * 5)
    mean, variance = groups.mean(-1, keepdims=True), groups.var(-1, keepdims=True)
    normal = ((groups - mean) / np.sqrt(variance + 0.1)).reshape(layer.x.shape)
    scale, bias = (layer[name].reshape(4, 1, 1) for name in ("scale", "bias"))
    layer.is_close_to(normal * scale + bias)


@pytest.mark.parametrize("bias", ["true", "false"])
def test_head_norm(bias: str) -> None:
    layer = Layer(f"(head-norm 2 4 :epsilon 0.1 :bias {bias})", X)
    heads = layer.x.reshape(BATCH, 5, 2, 2)
    mean, variance = heads.mean(-1, keepdims=True), heads.var(-1, keepdims=True)
    normal = ((heads - mean) / np.sqrt(variance + 0.1)).reshape(layer.x.shape)
    assert ("bias" in layer.weights) == (bias == "true")
    layer.is_close_to(normal * layer["scale"] + layer.weights.get("bias", 0))


@pytest.mark.parametrize("field", [IMAGE, "x (list f32 4 6)", "x (list f32 4)"])
def test_batch_norm_reads_running_statistics(field: str) -> None:
    layer = Layer("(batch-norm 4 :epsilon 0.1)", field)
    shape = (4,) + (1,) * (layer.x.ndim - 2)
    scale, bias, mean, variance = (
        layer[name].reshape(shape) for name in ("scale", "bias", "mean", "variance")
    )
    layer.is_close_to((layer.x - mean) / np.sqrt(variance + 0.1) * scale + bias)


def test_running_statistics_are_frozen() -> None:
    parameters = program(
        "(defmodel net () (parts n (batch-norm 4)) (apply (x) (n x)))\n(def model (net))"
    ).parameters()
    frozen = {path: parameter.frozen for path, parameter in parameters.items()}
    assert frozen == {"n.scale": False, "n.bias": False, "n.mean": True, "n.variance": True}


def test_mlp() -> None:
    layer = Layer("(mlp 4 7 3)", X)
    inner = gelu(layer.x @ layer["up.w"] + layer["up.b"])
    layer.is_close_to(inner @ layer["down.w"] + layer["down.b"])


def test_mlp_with_another_activation() -> None:
    layer = Layer("(mlp 4 7 3 :activation (fn (x) (relu (neg x))) :bias false)", X)
    layer.is_close_to(np.maximum(-(layer.x @ layer["up.w"]), 0) @ layer["down.w"])


def test_gelu_tanh() -> None:
    layer = Layer("(mlp 4 7 3 :activation gelu-tanh :bias false)", X)
    x = layer.x @ layer["up.w"]
    inner = x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    layer.is_close_to(inner @ layer["down.w"])


def test_swiglu() -> None:
    layer = Layer("(swiglu 4 6)", X)
    assert list(layer.weights) == ["gate.w", "up.w", "down.w"]
    inner = silu(layer.x @ layer["gate.w"]) * (layer.x @ layer["up.w"])
    layer.is_close_to(inner @ layer["down.w"])


@pytest.mark.parametrize(
    ("layer", "last"), [("(mlp 4 8 4 {})", "m.down.w"), ("(self-attention 4 2 {})", "m.out.w")]
)
def test_initializers(layer: str, last: str) -> None:
    """`:init` is that of every matrix, `:out-init` that of the last."""

    def values(keywords: str) -> dict[str, set[float]]:
        _, weights = traced(
            f"(def record (fields :x (list f32 5 4)))\n"
            f"(defmodel net () (parts m {layer.format(keywords)}) (apply (x) (m x)))\n"
            "(def model (net))"
        )
        return {path: set(array.ravel()) for path, array in weights.items() if array.ndim == 2}

    assert set.union(*values(":init (constant 2)").values()) == {2}
    found = values(":init (constant 2) :out-init (constant 3)")
    assert found.pop(last) == {3}
    assert set.union(*found.values()) == {2}


def test_conv1d() -> None:
    layer = Layer("(conv1d 4 3 2 :stride 2 :padding 1 :dilation 2)", "x (list f32 4 7)")
    padded = np.pad(layer.x, ((0, 0), (0, 0), (1, 1)))
    steps = [
        np.einsum("bik,oik->bo", padded[:, :, at : at + 3 : 2], layer["w"]) + layer["b"]
        for at in range(0, 7, 2)
    ]
    layer.is_close_to(np.stack(steps, -1))


def test_conv1d_causal() -> None:
    layer = Layer("(conv1d 4 4 3 :padding :causal :groups 2 :bias false)", "x (list f32 4 6)")
    padded = np.pad(layer.x, ((0, 0), (0, 0), (2, 0)))
    wanted = np.zeros((BATCH, 4, 6))
    for out in range(4):
        group = slice(2 * (out // 2), 2 * (out // 2) + 2)
        for at in range(6):
            window = padded[:, group, at : at + 3]
            wanted[:, out, at] = (window * layer["w"][out]).sum((1, 2))
    layer.is_close_to(wanted)


@pytest.mark.parametrize(("size", "shape"), [("3", (3, 3)), ("(list 1 3)", (1, 3))])
def test_conv2d(size: str, shape: tuple[int, int]) -> None:
    layer = Layer(f"(conv2d 4 2 {size})", IMAGE)
    height, width = 6 - shape[0] + 1, 5 - shape[1] + 1
    wanted = np.zeros((BATCH, 2, height, width))
    for i in range(height):
        for j in range(width):
            window = layer.x[:, :, i : i + shape[0], j : j + shape[1]]
            wanted[:, :, i, j] = np.einsum("bcij,ocij->bo", window, layer["w"]) + layer["b"]
    layer.is_close_to(wanted)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("top", [1, 2, 4])
def test_mixture(top: int, normalize: bool) -> None:
    layer = Layer(f"(mixture 4 6 4 :top {top} :normalize {str(normalize).lower()})", X)
    wanted = np.zeros((BATCH, 5, 4))
    for b in range(BATCH):
        for t in range(5):
            x = layer.x[b, t]
            scores = x @ layer["router.w"]
            best = np.argsort(-scores, kind="stable")[:top]
            shares = softmax(scores[best]) if normalize else softmax(scores)[best]
            for expert, share in zip(best, shares, strict=True):
                own = slice(6 * expert, 6 * expert + 6)
                inner = silu(x @ layer["gate"][:, own]) * (x @ layer["up"][:, own])
                wanted[b, t] += share * (inner @ layer["down"][own])
    layer.is_close_to(wanted)


@pytest.mark.parametrize("score", ["sigmoid", "softmax"])
@pytest.mark.parametrize("balance", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_mixture_of_groups(normalize: bool, balance: bool, score: str) -> None:
    """As DeepSeek-V3 has it, with 2 of 3 groups and 3 experts of the 4 in them."""
    layer = Layer(
        f"(mixture 4 5 6 :top 3 :score {score} :normalize {str(normalize).lower()} :scale 2.5"
        f" :balance {str(balance).lower()} :groups 3 :open-groups 2 :shared 7)",
        X,
    )
    wanted = np.zeros((BATCH, 5, 4))
    for b in range(BATCH):
        for t in range(5):
            x = layer.x[b, t]
            logits = x @ layer["router.w"]
            scores = softmax(logits) if score == "softmax" else 1 / (1 + np.exp(-logits))
            rated = scores + layer["balance"] if balance else scores
            worst = np.argmin(rated.reshape(3, 2).sum(-1))
            open_ones = [e for e in range(6) if e // 2 != worst]
            best = sorted(open_ones, key=lambda expert: -rated[expert])[:3]
            shares = scores[best] / (scores[best].sum() if normalize else 1)
            for expert, share in zip(best, shares, strict=True):
                own = slice(5 * expert, 5 * expert + 5)
                inner = silu(x @ layer["gate"][:, own]) * (x @ layer["up"][:, own])
                wanted[b, t] += 2.5 * share * (inner @ layer["down"][own])
            inner = silu(x @ layer["shared.gate.w"]) * (x @ layer["shared.up.w"])
            wanted[b, t] += inner @ layer["shared.down.w"]
    layer.is_close_to(wanted)


def test_groups_of_experts_that_cannot_be() -> None:
    head = "(def record (fields :x (list f32 4)))\n(defmodel net () (parts m (mixture 4 5 6 {}))"
    text = head + " (apply (x) (m x)))\n(def model (net))"
    error = program_error(text.format(":groups 4 :open-groups 2"), "E-ASSERT-001")
    assert "6 experts cannot be divided among 4 groups" in error.message
    error = program_error(text.format(":top 3 :groups 3 :open-groups 1"), "E-ASSERT-001")
    assert "3 experts are more than 1 groups have" in error.message


def test_experts_begin_as_one_would() -> None:
    """Their matrices are no kernels of a convolution, which would begin much smaller."""
    _, weights = traced(
        "(def record (fields :x (list f32 32)))\n"
        "(defmodel net () (parts m (mixture 32 96 8)) (apply (x) (m x)))\n(def model (net))"
    )
    for name in ("gate", "up", "down"):
        assert weights[f"m.{name}"].std() == pytest.approx((2 / (32 + 96)) ** 0.5, rel=0.05)


@pytest.mark.parametrize("name", ["dropout", "dropout-layer"])
def test_dropout_hands_on_what_it_gets(name: str) -> None:
    layer = Layer(f"({name} 0.5)", X, call="(* 1 (m x))")
    layer.is_close_to(layer.x)


def test_a_name_of_an_operation_and_a_layer_takes_the_keywords_of_the_one_that_is_meant() -> None:
    head = "(def record (fields :x (list f32 5 4)))\n"
    text = head + "(defmodel net () (parts m (lstm 4 3 {})) (apply (x) (m x)))\n(def model (net))"
    error = program_error(text.format(":bias-input 1"), "E-CALL-003")
    assert error.expected is not None
    assert error.expected.startswith("(lstm in hidden &key (reverse false) (return-state false)")
    error = program_error(head + "(def model (fn (x) (lstm x)))", "E-CALL-002")
    assert error.expected is not None
    assert error.expected.startswith("(lstm x w-input w-recurrent &key")
    error = program_error(head + "(def model (fn (x) (gru x x x :init (he))))", "E-CALL-003")
    assert error.expected is not None
    assert error.expected.startswith("(gru x w-input w-recurrent &key")


@pytest.mark.parametrize("axis", [0, 2])
def test_weight_norm(axis: int) -> None:
    shape = [1, 1, 1]
    shape[axis] = 4
    g = " ".join(map(str, shape))
    layer = Layer(
        "(linear 4 4)",
        "x (list f32 4)",
        call=f"(+ (* 0 (max x)) (weight-norm (reshape (matmul (get m :w) (get m :w)) (list 4 1 4))"
        f" (reshape (get m :b) (list {g})) :axis {axis}))",
    )
    v = (layer["w"] @ layer["w"]).reshape(4, 1, 4)
    for i in range(4):
        at = [slice(None)] * 3
        at[axis] = slice(i, i + 1)
        part = v[tuple(at)]
        v[tuple(at)] = part / np.sqrt((part**2).sum()) * layer["b"][i]
    layer.is_close_to(v)
