"""Recurrent layers that runtimes have kernels for: lstm and gru."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.gated_recurrence import GatedRecurrence, recurrence_signature
from sexpgpu.export.operations.operation import operation


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


@operation
class Lstm(GatedRecurrence):
    """A layer of long short-term memory; the results are the state `h` at every position
    [batch, time, hidden], and the last `h` and `c` [batch, hidden].

    With the gates i, f, g, o, in this order the rows of the weights, as in torch:

    (i, f, g, o) = w-input · x[t] + bias-input + w-recurrent · h + bias-recurrent

    c ← σ(f) · c + σ(i) · tanh(g),  h ← σ(o) · tanh(c)

    With `reverse` it goes from the last position to the first.  Hochreiter and Schmidhuber, "Long
    short-term memory", 1997, with the forget gate of Gers et al., 2000.

    ONNX: LSTM; in f64, and with products in bf16, Scan over the steps.
    """

    name = "lstm"
    signature = recurrence_signature("h", "c")
    example = (
        "(nth (lstm (zeros (list 1 2 1)) (zeros (list 4 1)) (zeros (list 4 1))\n"
        "           :c (ones (list 1 1)))\n"
        "     2)",
        "[[0.25]]",
    )
    states = ("h", "c")
    gates = 4
    onnx_gates = (0, 3, 1, 2)
    onnx_operator = "LSTM"

    def step(
        self, from_input: Sequence[Array], from_state: Sequence[Array], states: Sequence[Array]
    ) -> list[Array]:
        i, f, g, o = (a + b for a, b in zip(from_input, from_state, strict=True))
        c = _sigmoid(f) * states[1] + _sigmoid(i) * np.tanh(g)
        return [_sigmoid(o) * np.tanh(c), c]

    def lower_step(
        self, from_input: Sequence[Term], from_state: Sequence[Term], states: Sequence[Term]
    ) -> list[Term]:
        i, f, g, o = (a + b for a, b in zip(from_input, from_state, strict=True))
        c = f.apply("Sigmoid") * states[1] + i.apply("Sigmoid") * g.apply("Tanh")
        return [o.apply("Sigmoid") * c.apply("Tanh"), c]


@operation
class Gru(GatedRecurrence):
    """A layer of gated recurrent units; the results are the state `h` at every position
    [batch, time, hidden], and the last [batch, hidden].

    With the gates r, z, n, in this order the rows of the weights, and the reset after the product,
    as in torch, where (ir, iz, in) = w-input · x[t] + bias-input and
    (hr, hz, hn) = w-recurrent · h + bias-recurrent:

    r = σ(ir + hr),  z = σ(iz + hz),  n = tanh(in + r · hn),  h ← (1 − z) · n + z · h

    With `reverse` it goes from the last position to the first.  Cho et al., "Learning phrase
    representations using RNN encoder-decoder", 2014.

    ONNX: GRU with linear_before_reset; in f64, and with products in bf16, Scan over the steps.
    """

    name = "gru"
    signature = recurrence_signature("h")
    example = (
        "(gru (zeros (list 1 2 1)) (zeros (list 3 1)) (zeros (list 3 1)) :h (ones (list 1 1)))",
        "(list [[[0.5] [0.25]]] [[0.25]])",
    )
    states = ("h",)
    gates = 3
    onnx_gates = (1, 0, 2)
    onnx_operator = "GRU"
    linear_before_reset = 1

    def step(
        self, from_input: Sequence[Array], from_state: Sequence[Array], states: Sequence[Array]
    ) -> list[Array]:
        r, z = (_sigmoid(a + b) for a, b in zip(from_input[:2], from_state[:2], strict=True))
        n = np.tanh(from_input[2] + r * from_state[2])
        return [(1 - z) * n + z * states[0]]

    def lower_step(
        self, from_input: Sequence[Term], from_state: Sequence[Term], states: Sequence[Term]
    ) -> list[Term]:
        r, z = (
            (a + b).apply("Sigmoid") for a, b in zip(from_input[:2], from_state[:2], strict=True)
        )
        n = (from_input[2] + r * from_state[2]).apply("Tanh")
        return [(1 - z) * n + z * states[0]]
