"""A layer of the prelude on random numbers, and the functions that tests write layers out with."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sexpgpu.export.graph.types import Array, concrete
from support.harness import check_graph
from support.programs import traced

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
            self.weights[path.removeprefix("m.")] = np.abs(drawn) if "variance" in path else drawn
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


def rms_normal(x: Array, epsilon: float) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon))


def layer_normal(x: Array, epsilon: float = 1e-5) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(x.var(-1, keepdims=True) + epsilon))


def attend(
    layer: Layer,
    heads: int,
    groups: int,
    allowed: Array,
    turn: Callable[[Array, str], Array] = lambda x, name: x,
    *,
    softcap: float | None = None,
    scale: float | None = None,
    bias: Array | None = None,
    x: Array | None = None,
    memory: Array | None = None,
    at: str = "",
) -> Array:
    """Attention written out, a head and a record at a time, by the weights under the path `at`.

    `turn` is what is done to the queries and keys of a head; `allowed` is [queries, keys] or for
    each record, `bias` broadcasts to [heads, queries, keys] or for each record.
    """
    x = layer.x if x is None else x
    memory = x if memory is None else memory

    def project(x: Array, name: str) -> Array:
        offset = layer[f"{at}{name}.b"] if f"{at}{name}.b" in layer.weights else 0.0
        return np.asarray(x @ layer[f"{at}{name}.w"] + offset)

    q, k, v = project(x, "q"), project(memory, "k"), project(memory, "v")
    size = q.shape[-1] // heads
    added = np.zeros((BATCH, heads, x.shape[1], memory.shape[1])) + (0.0 if bias is None else bias)
    made = np.zeros(q.shape)
    for head in range(heads):
        key_head = head * groups // heads
        mine = slice(head * size, (head + 1) * size)
        theirs = slice(key_head * size, (key_head + 1) * size)
        queries, keys = turn(q[..., mine], "q"), turn(k[..., theirs], "k")
        for b in range(BATCH):
            scores = queries[b] @ keys[b].T * (size**-0.5 if scale is None else scale)
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            scores += added[b, head]
            scores = np.where(allowed[b] if allowed.ndim == 3 else allowed, scores, -np.inf)
            made[b, :, mine] = softmax(scores) @ v[b][:, theirs]
    return project(made, "out")
