"""Graphs and what recommends against NumPy, an edge and a pair at a time."""

from __future__ import annotations

import numpy as np
import pytest

from support.layers import BATCH, Layer, X

#: Indices of a record are less than 5.
EDGES = ("sources (list i32 7)", "targets (list i32 7)")
WEIGHTS = "weights (list f32 7)"


def test_gather_nodes() -> None:
    layer = Layer("(linear 4 4)", X, *EDGES, call="(gather-nodes (m x) sources)")
    x = layer.x @ layer["w"] + layer["b"]
    layer.is_close_to(np.stack([x[i][layer.inputs[1][i]] for i in range(BATCH)]))


def test_sum_messages() -> None:
    call = "(sum-messages (gather-nodes (m x) sources) targets 6)"
    layer = Layer("(linear 4 4)", X, *EDGES, call=call)
    x = layer.x @ layer["w"] + layer["b"]
    wanted = np.zeros((BATCH, 6, 4))
    for i in range(BATCH):
        for source, target in zip(layer.inputs[1][i], layer.inputs[2][i], strict=True):
            wanted[i, target] += x[i, source]
    layer.is_close_to(wanted)


@pytest.mark.parametrize("weighted", [False, True])
def test_mean_messages(weighted: bool) -> None:
    weights = ":weights (pow weights 2)" if weighted else ""
    call = f"(mean-messages (gather-nodes (m x) sources) targets 6 {weights})"
    layer = Layer("(linear 4 4)", X, *EDGES, WEIGHTS, call=call)
    x = layer.x @ layer["w"] + layer["b"]
    wanted = np.zeros((BATCH, 6, 4))
    _, sources, targets, drawn = layer.inputs
    for i in range(BATCH):
        for node in range(6):
            edges = [edge for edge in range(7) if targets[i, edge] == node]
            shares = [drawn[i, edge] ** 2 if weighted else 1.0 for edge in edges]
            if edges:
                wanted[i, node] = np.average([x[i, sources[i, e]] for e in edges], 0, shares)
    assert not wanted[:, 5].any(), "a node to which there is no edge"
    layer.is_close_to(wanted)


REAL = "real (list bool 7)"


@pytest.mark.parametrize("some", [False, True])
def test_max_messages(some: bool) -> None:
    real = ":real real" if some else ""
    call = f"(max-messages (gather-nodes (m x) sources) targets 6 {real})"
    layer = Layer("(linear 4 4)", X, *EDGES, REAL, call=call)
    x = layer.x @ layer["w"] + layer["b"]
    wanted = np.zeros((BATCH, 6, 4))
    _, sources, targets, given = layer.inputs
    for i in range(BATCH):
        for node in range(6):
            held = (targets[i] == node) & (given[i] if some else True)
            if held.any():
                wanted[i, node] = x[i, sources[i, held]].max(0)
    layer.is_close_to(wanted)


@pytest.mark.parametrize("some", [False, True])
def test_softmax_messages(some: bool) -> None:
    real = ":real real" if some else ""
    call = f"(softmax-messages (* 100 (gather-nodes (m x) sources)) targets 6 {real})"
    layer = Layer("(linear 4 2)", X, *EDGES, REAL, call=call)
    x = layer.x @ layer["w"] + layer["b"]
    wanted = np.zeros((BATCH, 7, 2))
    _, sources, targets, given = layer.inputs
    for i in range(BATCH):
        for node in range(6):
            held = (targets[i] == node) & (given[i] if some else True)
            if held.any():
                scores = 100 * x[i, sources[i, held]]
                e = np.exp(scores - scores.max(0))
                wanted[i, held] = e / e.sum(0)
    assert 0.2 < wanted.max(initial=0) <= 1
    layer.is_close_to(wanted)


def test_embedding_bag() -> None:
    layer = Layer("(embedding-bag 5 3)", "x (list i32 2 4)")
    layer.is_close_to(layer["w"][layer.inputs[0]].sum(2))
    layer = Layer(
        "(embedding-bag 5 3)", "x (list i32 4)", "w (list f32 4)", call="(m x :weights w)"
    )
    indices, weights = layer.inputs
    layer.is_close_to((layer["w"][indices] * weights[..., None]).sum(1))


def test_pairwise_products() -> None:
    layer = Layer("(linear 4 4)", X, call="(pairwise-products (m x))")
    x = layer.x @ layer["w"] + layer["b"]
    pairs = [(x[:, i] * x[:, j]).sum(-1) for i in range(5) for j in range(i)]
    layer.is_close_to(np.stack(pairs, 1))


def test_perceptron() -> None:
    layer = Layer("(perceptron (list 4 6 5 2))", X)
    x = layer.x
    for i in range(3):
        x = x @ layer[f"layers.{i}.w"] + layer[f"layers.{i}.b"]
        x = np.maximum(x, 0) if i < 2 else x
    layer.is_close_to(x)
    layer = Layer("(perceptron (list 4 3 2) :activation tanh :last abs :bias false)", X)
    assert list(layer.weights) == ["layers.0.w", "layers.1.w"]
    layer.is_close_to(abs(np.tanh(layer.x @ layer["layers.0.w"]) @ layer["layers.1.w"]))
