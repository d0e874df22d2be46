"""Recurrent layers that runtimes have kernels for: lstm and gru."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.gated_lowering import LoweredFromState
from sexpgpu.export.operations.gated_recurrence import (
    FromState,
    GatedRecurrence,
    recurrence_signature,
)
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.signature import Attribute, Kind


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


@operation
class Lstm(GatedRecurrence):
    """A layer of long short-term memory; the results are the state `h` at every position
    [batch, time, hidden], and the last `h` and `c` [batch, hidden].

    With the gates i, f, g, o, in this order the rows of the weights, as in torch:

    (i, f, g, o) = w-input · x[t] + bias-input + w-recurrent · h + bias-recurrent

    c ← σ(f) · c + σ(i) · tanh(g),  h ← σ(o) · tanh(c)

    With `reverse` it goes from the last position to the first.  Of a record that has fewer
    positions, as `lengths` says, the others are not read: `h` is zero there, and the last states
    are those after the positions that it has.  It has one at least, and at most those of `x`,
    whatever its length says.  Hochreiter and Schmidhuber, "Long
    short-term memory", 1997, with the forget gate of Gers et al., 2000.

    ONNX: LSTM, whose gates keep the states where a record has no position; in f64, with products in
    bf16, and in reverse from an `h` with `lengths`, Scan over the steps.
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
    hold = (-1, 1, 0, -1)
    holds_all = False

    def step(
        self,
        from_input: Sequence[Array],
        from_state: FromState,
        states: Sequence[Array],
        attributes: Attributes,
    ) -> list[Array]:
        added = from_state(states[0], 0, 4)
        i, f, g, o = (a + b for a, b in zip(from_input, added, strict=True))
        c = _sigmoid(f) * states[1] + _sigmoid(i) * np.tanh(g)
        return [_sigmoid(o) * np.tanh(c), c]

    def lower_step(
        self,
        from_input: Sequence[Term],
        from_state: LoweredFromState,
        states: Sequence[Term],
        attributes: Attributes,
    ) -> list[Term]:
        added = from_state(states[0], 0, 4)
        i, f, g, o = (a + b for a, b in zip(from_input, added, strict=True))
        c = f.apply("Sigmoid") * states[1] + i.apply("Sigmoid") * g.apply("Tanh")
        return [o.apply("Sigmoid") * c.apply("Tanh"), c]


@operation
class Gru(GatedRecurrence):
    """A layer of gated recurrent units; the results are the state `h` at every position
    [batch, time, hidden], and the last [batch, hidden].

    With the gates r, z, n, in this order the rows of the weights, as in torch, where
    (ir, iz, in) = w-input · x[t] + bias-input and (hr, hz, hn) = w-recurrent · h + bias-recurrent:

    r = σ(ir + hr),  z = σ(iz + hz),  n = tanh(in + r · hn),  h ← (1 − z) · n + z · h

    The reset comes after the product here.  With `reset-after` false it comes before, as in the
    paper, and hn is the product of r · h: what Keras calls by the same name, and has false in GRUs
    of its version 1.  `reverse` and `lengths` are those of `lstm`.  Cho et al., "Learning phrase
    representations using RNN encoder-decoder", 2014.

    ONNX: GRU, with `reset-after` as linear_before_reset, whose gates keep the state where a record
    has no position; in f64, and with products in bf16, Scan over the steps.
    """

    name = "gru"
    signature = recurrence_signature("h", attributes=[Attribute("reset-after", Kind.BOOLEAN, True)])
    example = (
        "(gru (zeros (list 1 2 1)) (zeros (list 3 1)) (zeros (list 3 1)) :h (ones (list 1 1)))",
        "(list [[[0.5] [0.25]]] [[0.25]])",
    )
    states = ("h",)
    gates = 3
    onnx_gates = (1, 0, 2)
    onnx_operator = "GRU"
    hold = (0, 1, 0)
    holds_all = True

    def step(
        self,
        from_input: Sequence[Array],
        from_state: FromState,
        states: Sequence[Array],
        attributes: Attributes,
    ) -> list[Array]:
        (h,) = states
        added = from_state(h, 0, 3 if attributes["reset-after"] else 2)
        r, z = (_sigmoid(a + b) for a, b in zip(from_input[:2], added[:2], strict=True))
        new = r * added[2] if attributes["reset-after"] else from_state(r * h, 2, 3)[0]
        n = np.tanh(from_input[2] + new)
        return [(1 - z) * n + z * h]

    def lower_step(
        self,
        from_input: Sequence[Term],
        from_state: LoweredFromState,
        states: Sequence[Term],
        attributes: Attributes,
    ) -> list[Term]:
        (h,) = states
        added = from_state(h, 0, 3 if attributes["reset-after"] else 2)
        r, z = ((a + b).apply("Sigmoid") for a, b in zip(from_input[:2], added[:2], strict=True))
        new = r * added[2] if attributes["reset-after"] else from_state(r * h, 2, 3)[0]
        n = (from_input[2] + new).apply("Tanh")
        return [(1 - z) * n + z * h]

    def onnx_attributes(self, attributes: Attributes) -> dict[str, Any]:
        return {"linear_before_reset": int(attributes["reset-after"])}
