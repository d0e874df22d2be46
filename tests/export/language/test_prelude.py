"""Every layer of the prelude against NumPy written out by hand, by the reference and by ONNX."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, concrete
from sexpgpu.export.language.models import ModelClass
from support.harness import check_graph
from support.programs import place, program, program_error, traced

BATCH = 3


class Layer:
    """A layer applied to random numbers, with random weights in place of its initial ones."""

    def __init__(self, expression: str, *fields: str, call: str = "(m x)") -> None:
        names = [field.split()[0] for field in fields]
        record = " ".join(f":{field}" for field in fields)
        graph, weights = traced(
            f"(def record (fields {record}))\n"
            f"(defmodel net () (parts m {expression}) (apply ({' '.join(names)}) {call}))\n"
            "(def model (net))"
        )
        generator = np.random.default_rng(5)
        self.weights: dict[str, Array] = {}
        for path, array in weights.items():
            drawn = generator.standard_normal(array.shape).astype(array.dtype)
            # A variance is positive.
            self.weights[path.removeprefix("m.")] = abs(drawn) if "variance" in path else drawn
        feeds: dict[str, Array] = {}
        for value in graph.inputs:
            shape = concrete(value.type.shape, BATCH)
            if value.type.dtype.is_integer:
                feeds[value.name] = generator.integers(0, 5, shape).astype(value.type.dtype.numpy)
            elif value.type.dtype.is_float:
                feeds[value.name] = generator.standard_normal(shape).astype(np.float32)
            else:
                feeds[value.name] = generator.random(shape) < 0.6
        self.inputs = list(feeds.values())
        stored = {f"m.{path}": array for path, array in self.weights.items()}
        (self.found,) = check_graph(graph, feeds, stored, relative=2e-4, absolute=2e-5)

    @property
    def x(self) -> Array:
        return self.inputs[0].astype(np.float64)

    def __getitem__(self, path: str) -> Array:
        return self.weights[path].astype(np.float64)

    def is_close_to(self, wanted: Array) -> None:
        assert self.found.shape == wanted.shape
        np.testing.assert_allclose(self.found, wanted, 2e-4, 2e-5)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


X = "x (list f32 5 4)"
#: A call with a mask [batch, positions] that lets the first position be seen always.
MASKED = (
    "(m x :mask (concat (broadcast-to true (list (dim x 0) 1)) "
    "(slice mask :axis 1 :from 1) :axis 1))"
)
IMAGE = "x (list f32 4 6 5)"


def test_every_layer_is_tested() -> None:
    top = program("(def model (linear 1 1))").environment.top
    layers = {name for name, value in top.values.items() if isinstance(value, ModelClass)}
    assert layers == {
        *("linear", "embedding", "layer-norm", "rms-norm", "group-norm", "batch-norm", "mlp"),
        *("swiglu", "self-attention", "conv1d", "conv2d", "lstm-layer", "gru-layer", "mixture"),
        "dropout-layer",
    }


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
    x = layer.x
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.1)
    layer.is_close_to(normal * layer["scale"] + layer["bias"])


def test_layer_norm_without_bias() -> None:
    layer = Layer("(layer-norm 4 :bias false)", X)
    assert list(layer.weights) == ["scale"]
    x = layer.x
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    layer.is_close_to(normal * layer["scale"])


def test_rms_norm() -> None:
    layer = Layer("(rms-norm 4 :epsilon 0.1)", X)
    x = layer.x
    layer.is_close_to(x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.1) * layer["scale"])


def test_group_norm() -> None:
    layer = Layer("(group-norm 2 4 :epsilon 0.1)", IMAGE)
    groups = layer.x.reshape(BATCH, 2, 2 * 6 * 5)
    mean, variance = groups.mean(-1, keepdims=True), groups.var(-1, keepdims=True)
    normal = ((groups - mean) / np.sqrt(variance + 0.1)).reshape(layer.x.shape)
    scale, bias = (layer[name].reshape(4, 1, 1) for name in ("scale", "bias"))
    layer.is_close_to(normal * scale + bias)


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


def test_swiglu() -> None:
    layer = Layer("(swiglu 4 6)", X)
    assert list(layer.weights) == ["gate.w", "up.w", "down.w"]
    inner = silu(layer.x @ layer["gate.w"]) * (layer.x @ layer["up.w"])
    layer.is_close_to(inner @ layer["down.w"])


def attend(
    layer: Layer,
    heads: int,
    groups: int,
    allowed: Array,
    turn: object = None,
    softcap: float | None = None,
) -> Array:
    """Attention written out: a head and a query at a time."""
    x = layer.x
    time = x.shape[1]

    def project(name: str) -> Array:
        bias = layer[f"{name}.b"] if f"{name}.b" in layer.weights else 0.0
        return np.asarray(x @ layer[f"{name}.w"] + bias)

    size = layer["q.w"].shape[1] // heads
    q, k, v = project("q"), project("k"), project("v")
    made = np.zeros((BATCH, time, heads * size))
    for head in range(heads):
        key_head = head * groups // heads
        mine = slice(head * size, (head + 1) * size)
        theirs = slice(key_head * size, (key_head + 1) * size)
        queries, keys, values = q[..., mine], k[..., theirs], v[..., theirs]
        if turn is not None:
            queries, keys = turn(queries), turn(keys)  # type: ignore[operator]
        for b in range(BATCH):
            scores = queries[b] @ keys[b].T / math.sqrt(size)
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            scores = np.where(allowed[b] if allowed.ndim == 3 else allowed, scores, -np.inf)
            made[b, :, mine] = softmax(scores) @ values[b]
    bias = layer["out.b"] if "out.b" in layer.weights else 0.0
    return np.asarray(made @ layer["out.w"] + bias)


EVERY = np.ones((5, 5), bool)
CAUSAL = np.tril(EVERY)


def turned(x: Array) -> Array:
    """Rotary of pairs (j, j + size/2), by positions from 0, base 100."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[-2])[:, None] * 100.0 ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def turned_in_pairs(x: Array) -> Array:
    """Rotary of pairs (2j, 2j + 1) of the first two components alone."""
    angles = np.arange(x.shape[-2])
    a, b = x[..., 0], x[..., 1]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([np.stack([a * cos - b * sin, b * cos + a * sin], -1), x[..., 2:]], -1)


def test_self_attention() -> None:
    layer = Layer("(self-attention 4 2)", X)
    assert list(layer.weights) == ["q.w", "q.b", "k.w", "k.b", "v.w", "v.b", "out.w", "out.b"]
    layer.is_close_to(attend(layer, 2, 2, EVERY))


def test_self_attention_causal_and_without_bias() -> None:
    layer = Layer("(self-attention 4 2 :causal true :bias false)", X)
    assert list(layer.weights) == ["q.w", "k.w", "v.w", "out.w"]
    layer.is_close_to(attend(layer, 2, 2, CAUSAL))


def test_self_attention_without_the_last_bias() -> None:
    layer = Layer("(self-attention 4 2 :out-bias false)", X)
    assert "out.b" not in layer.weights
    layer.is_close_to(attend(layer, 2, 2, EVERY))


def test_self_attention_grouped_query() -> None:
    layer = Layer("(self-attention 4 4 :kv-heads 2 :head-dim 2)", X)
    assert layer["k.w"].shape == (4, 4)
    layer.is_close_to(attend(layer, 4, 2, EVERY))


def test_self_attention_rotary() -> None:
    layer = Layer("(self-attention 4 2 :head-dim 4 :rotary true :base 100 :causal true)", X)
    layer.is_close_to(attend(layer, 2, 2, CAUSAL, turned))


def test_self_attention_rotary_of_interleaved_pairs_of_some_components() -> None:
    options = ":head-dim 4 :rotary true :interleaved true :rotary-dim 2"
    layer = Layer(f"(self-attention 4 2 {options})", X)
    layer.is_close_to(attend(layer, 2, 2, EVERY, turned_in_pairs))


def test_self_attention_in_a_window() -> None:
    layer = Layer("(self-attention 4 2 :causal true :window 2)", X)
    layer.is_close_to(attend(layer, 2, 2, CAUSAL & ~np.tril(EVERY, -2)))


def test_self_attention_with_a_soft_cap() -> None:
    layer = Layer("(self-attention 4 2 :softcap 1.5)", X)
    layer.is_close_to(attend(layer, 2, 2, EVERY, softcap=1.5))


def test_self_attention_with_a_mask_of_keys() -> None:
    layer = Layer("(self-attention 4 2)", X, "mask (list bool 5)", call=MASKED)
    mask = layer.inputs[1].copy()
    mask[:, 0] = True
    layer.is_close_to(attend(layer, 2, 2, np.broadcast_to(mask[:, None], (BATCH, 5, 5))))


def test_self_attention_with_a_mask_of_pairs() -> None:
    call = "(m x :mask (logical-or mask (eye 5 :dtype bool)))"
    layer = Layer("(self-attention 4 2)", X, "mask (list bool 1 5 5)", call=call)
    layer.is_close_to(attend(layer, 2, 2, layer.inputs[1][:, 0] | np.eye(5, dtype=bool)))


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


def test_self_attention_refuses_a_width_that_its_heads_do_not_divide() -> None:
    error = program_error("(def x (self-attention 8 3))", "E-ASSERT-001")
    assert error.message == "a width of 8 cannot be divided among 3 heads"
    assert place(error) == (1, 8, "(self-attention 8 3)")


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


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["lstm", "lstm-layer"])
def test_lstm(name: str, reverse: bool) -> None:
    layer = Layer(f"({name} 4 3 :reverse {str(reverse).lower()})", X)
    h, c = np.zeros((BATCH, 3)), np.zeros((BATCH, 3))
    wanted = np.zeros((BATCH, 5, 3))
    for step in reversed(range(5)) if reverse else range(5):
        gates = layer.x[:, step] @ layer["w-input"].T + layer["b-input"]
        gates += h @ layer["w-recurrent"].T + layer["b-recurrent"]
        i, f, g, o = np.split(gates, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = wanted[:, step] = sigmoid(o) * np.tanh(c)
    layer.is_close_to(wanted)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["gru", "gru-layer"])
def test_gru(name: str, reverse: bool) -> None:
    layer = Layer(f"({name} 4 3 :reverse {str(reverse).lower()})", X)
    h = np.zeros((BATCH, 3))
    wanted = np.zeros((BATCH, 5, 3))
    for step in reversed(range(5)) if reverse else range(5):
        mine = layer.x[:, step] @ layer["w-input"].T + layer["b-input"]
        r, z, n = np.split(mine, 3, -1)
        theirs = h @ layer["w-recurrent"].T + layer["b-recurrent"]
        r_h, z_h, n_h = np.split(theirs, 3, -1)
        reset, update = sigmoid(r + r_h), sigmoid(z + z_h)
        h = wanted[:, step] = (1 - update) * np.tanh(n + reset * n_h) + update * h
    layer.is_close_to(wanted)


@pytest.mark.parametrize("top", [1, 2, 4])
def test_mixture(top: int) -> None:
    layer = Layer(f"(mixture 4 6 4 :top {top})", X)
    wanted = np.zeros((BATCH, 5, 4))
    for b in range(BATCH):
        for t in range(5):
            x = layer.x[b, t]
            scores = x @ layer["router.w"]
            best = np.argsort(-scores, kind="stable")[:top]
            for expert, weight in zip(best, softmax(scores[best]), strict=True):
                inner = silu(x @ layer["gate"][expert]) * (x @ layer["up"][expert])
                wanted[b, t] += weight * (inner @ layer["down"][expert])
    layer.is_close_to(wanted)


@pytest.mark.parametrize("name", ["dropout", "dropout-layer"])
def test_dropout_hands_on_what_it_gets(name: str) -> None:
    layer = Layer(f"({name} 0.5)", X, call="(* 1 (m x))")
    layer.is_close_to(layer.x)


def test_a_name_of_an_operation_and_a_layer_takes_the_keywords_of_the_one_that_is_meant() -> None:
    head = "(def record (fields :x (list f32 5 4)))\n"
    text = head + "(defmodel net () (parts m (lstm 4 3 {})) (apply (x) (m x)))\n(def model (net))"
    error = program_error(text.format(":bias-input 1"), "E-CALL-003")
    assert error.expected == "(lstm in hidden &key (reverse false) (init (lecun)))"
    error = program_error(head + "(def model (fn (x) (lstm x)))", "E-CALL-002")
    assert error.expected is not None
    assert error.expected.startswith("(lstm x w-input w-recurrent &key")
    error = program_error(head + "(def model (fn (x) (gru x x x :init (he))))", "E-CALL-003")
    assert error.expected is not None
    assert error.expected.startswith("(gru x w-input w-recurrent &key")
