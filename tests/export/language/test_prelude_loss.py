"""Losses of sequences and densities against what they mean, written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.layers import BATCH, Layer

CLASSES = 4
POSITIONS = 6


def spoken(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    """What a path says: each label once where it stands in a row, and no blank."""
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def cost(log_p: Array, labels: tuple[int, ...], blank: int) -> float:
    """-log of the sum of the probabilities of all paths that say the labels."""
    paths = itertools.product(range(log_p.shape[1]), repeat=len(log_p))
    said = [p for p in paths if spoken(p, blank) == labels]
    total = sum(math.exp(sum(log_p[i, label] for i, label in enumerate(p))) for p in said)
    return -math.log(total) if total else math.inf


def log_p_of(layer: Layer) -> Array:
    logits = layer.x @ layer["w"] + layer["b"]
    return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))


def ctc(call: str, *fields: str) -> Layer:
    return Layer(
        f"(linear 3 {CLASSES})", f"x (list f32 {POSITIONS} 3)", "t (list i32 3)", *fields, call=call
    )


@pytest.mark.parametrize("blank", [0, 3])
@pytest.mark.parametrize("labels", ["t", "(* 0 t)"])
def test_ctc_loss(labels: str, blank: int) -> None:
    """Of labels that differ, and of equal ones, which need a blank between them."""
    other = 1 if blank == 0 else 0
    named = f"(+ {other} (mod {labels} 3))"
    layer = ctc(f"(ctc-loss (log-softmax (m x)) {named} :blank {blank})")
    said = other + (layer.inputs[1] * (labels == "t")) % 3
    log_p = log_p_of(layer)
    layer.is_close_to(
        np.array([cost(log_p[i], tuple(map(int, said[i])), blank) for i in range(BATCH)])
    )


def test_ctc_loss_of_records_of_their_own_lengths() -> None:
    """A record of no label is one of blanks alone, and one too short for its labels infinite."""
    lengths = ":lengths (- 6 n) :label-lengths (mod k 4)"
    call = f"(ctc-loss (log-softmax (m x)) (+ 1 (mod t 3)) {lengths})"
    layer = ctc(call, "n i32", "k i64")
    labels, short, many = layer.inputs[1] % 3 + 1, layer.inputs[2], layer.inputs[3] % 4
    log_p = log_p_of(layer)
    assert len(set(short)) > 1
    assert len(set(many)) > 1
    wanted = [
        cost(log_p[i, : 6 - short[i]], tuple(map(int, labels[i, : many[i]])), 0)
        for i in range(BATCH)
    ]
    layer.is_close_to(np.array(wanted))


def test_ctc_loss_is_infinite_where_the_labels_do_not_fit() -> None:
    layer = Layer(
        "(linear 3 4)",
        "x (list f32 2 3)",
        call="(ctc-loss (log-softmax (m x)) (per-record (tensor (list 1 1)) x))",
    )
    np.testing.assert_array_equal(layer.found, np.full(BATCH, np.inf))


def test_normal_log_density() -> None:
    layer = Layer(
        "(linear 4 4)",
        "x (list f32 4)",
        "t (list f32 4)",
        call="(normal-log-density t :mean (m x) :log-deviation (* 0.5 x))",
    )
    mean, deviation = layer.x @ layer["w"] + layer["b"], np.exp(layer.x / 2)
    density = np.exp(-(((layer.inputs[1] - mean) / deviation) ** 2) / 2)
    layer.is_close_to(np.log(density / (deviation * math.sqrt(2 * math.pi))))


def test_info_nce() -> None:
    layer = Layer(
        "(linear 3 4)",
        "x (list f32 3)",
        "y (list f32 4)",
        call="(info-nce (m x) y :temperature 0.5)",
    )
    logits = (layer.x @ layer["w"] + layer["b"]) @ layer.inputs[1].T / 0.5
    own = np.exp(logits[range(BATCH), range(BATCH)])
    layer.is_close_to(-np.log(own / np.exp(logits).sum(-1)))
