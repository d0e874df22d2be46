"""The prelude's recurrent layers, against NumPy written out by hand, one position at a time."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.layers import BATCH, Layer, X, sigmoid
from support.programs import program, value_of

LENGTHS = "n (list i32)"
#: From 0 to 4, of which 0 counts as 1.
READ_SOME = "(m x :lengths n)"


def lstm_step(layer: Layer, x: Array, state: tuple[Array, ...], at: str = "") -> tuple[Array, ...]:
    gates = x @ layer[f"{at}w-input"].T + layer[f"{at}b-input"]
    gates += state[0] @ layer[f"{at}w-recurrent"].T + layer[f"{at}b-recurrent"]
    i, f, g, o = np.split(gates, 4, -1)
    c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(layer: Layer, x: Array, state: tuple[Array, ...], at: str = "") -> tuple[Array, ...]:
    r, z, n = np.split(x @ layer[f"{at}w-input"].T + layer[f"{at}b-input"], 3, -1)
    from_state = state[0] @ layer[f"{at}w-recurrent"].T + layer[f"{at}b-recurrent"]
    r_h, z_h, n_h = np.split(from_state, 3, -1)
    z = sigmoid(z + z_h)
    return ((1 - z) * np.tanh(n + sigmoid(r + r_h) * n_h) + z * state[0],)


STEPS = {"lstm": (lstm_step, 2), "gru": (gru_step, 1)}


def walk(
    name: str,
    layer: Layer,
    x: Array,
    *,
    reverse: bool = False,
    lengths: Array | None = None,
    state: tuple[Array, ...] | None = None,
    at: str = "",
) -> tuple[Array, tuple[Array, ...]]:
    """The state h at every position, zero where a record has none, and the last states."""
    step, count = STEPS[name]
    hidden = layer[f"{at}w-recurrent"].shape[1]
    states = [list(s) for s in state or [np.zeros((len(x), hidden))] * count]
    sequence = np.zeros((*x.shape[:2], hidden))
    for record in range(len(x)):
        length = x.shape[1] if lengths is None else max(1, lengths[record])
        for time in reversed(range(length)) if reverse else range(length):
            before = tuple(np.asarray(s[record]) for s in states)
            for kept, after in zip(states, step(layer, x[record, time], before, at), strict=True):
                kept[record] = after
            sequence[record, time] = states[0][record]
    return sequence, tuple(np.stack(s) for s in states)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["lstm", "lstm-layer", "gru", "gru-layer"])
def test_layers(name: str, reverse: bool) -> None:
    expression = f"({name} 4 3 :reverse {str(reverse).lower()})"
    kind = name.removesuffix("-layer")
    layer = Layer(expression, X)
    layer.is_close_to(walk(kind, layer, layer.x, reverse=reverse)[0])
    layer = Layer(expression, X, LENGTHS, call=READ_SOME)
    layer.is_close_to(walk(kind, layer, layer.x, reverse=reverse, lengths=layer.inputs[1])[0])


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_without_biases(name: str) -> None:
    layer = Layer(f"({name} 4 3 :bias false)", X)
    assert list(layer.weights) == ["w-input", "w-recurrent"]
    zeros = np.zeros(len(layer["w-input"]), np.float32)
    layer.weights |= {"b-input": zeros, "b-recurrent": zeros}
    layer.is_close_to(walk(name, layer, layer.x)[0])


def test_the_states_of_an_lstm() -> None:
    fields = X, LENGTHS, "h (list f32 3)", "c (list f32 3)"
    call = (
        "(let ((sequence (h c)) (m x :lengths n :state (list h c)))"
        " (concat (reshape sequence (list (dim x 0) -1)) h c))"
    )
    layer = Layer("(lstm 4 3 :return-state true)", *fields, call=call)
    first = (layer.inputs[2], layer.inputs[3])
    sequence, (h, c) = walk("lstm", layer, layer.x, lengths=layer.inputs[1], state=first)
    layer.is_close_to(np.concatenate([sequence.reshape(BATCH, -1), h, c], -1))


@pytest.mark.parametrize("reset_after", [True, False])
def test_the_state_of_a_gru(reset_after: bool) -> None:
    call = "(let ((sequence h) (m x :state h)) (concat sequence (unsqueeze h 1) :axis 1))"
    expression = f"(gru 4 3 :return-state true :reset-after {str(reset_after).lower()})"
    layer = Layer(expression, X, "h (list f32 3)", call=call)
    if reset_after:
        sequence, (h,) = walk("gru", layer, layer.x, state=(layer.inputs[1],))
        layer.is_close_to(np.concatenate([sequence, h[:, None]], 1))
        return
    h, found = layer.inputs[1].astype(np.float64), []
    w, r, b, c = (layer[name] for name in ("w-input", "w-recurrent", "b-input", "b-recurrent"))
    for time in range(5):
        mine = layer.x[:, time] @ w.T + b
        reset, z = np.split(sigmoid(mine[:, :6] + h @ r[:6].T + c[:6]), 2, -1)
        n = np.tanh(mine[:, 6:] + (reset * h) @ r[6:].T + c[6:])
        h = (1 - z) * n + z * h
        found.append(h)
    layer.is_close_to(np.stack([*found, h], 1))


@pytest.mark.parametrize(
    ("name", "state", "shown"), [("lstm", "(list h c)", "(concat a)"), ("gru", "h", "a")]
)
def test_one_step(name: str, state: str, shown: str) -> None:
    fields = "x (list f32 4)", "h (list f32 3)", "c (list f32 3)"
    call = f"(let (a (recurrent-step m x {state})) {shown})"
    layer = Layer(f"({name} 4 3 :return-state true)", *fields, call=call)
    step, count = STEPS[name]
    layer.is_close_to(np.concatenate(step(layer, layer.x, tuple(layer.inputs[1 : 1 + count])), -1))


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_bidirectional(name: str) -> None:
    expression = f"(bidirectional (fn (reverse) ({name} 4 3 :reverse reverse)))"
    layer = Layer(expression, X, LENGTHS, call=READ_SOME)
    sides = [
        walk(name, layer, layer.x, reverse=reverse, lengths=layer.inputs[1], at=at)[0]
        for at, reverse in (("forward.", False), ("backward.", True))
    ]
    layer.is_close_to(np.concatenate(sides, -1))


def test_the_states_of_both_directions() -> None:
    expression = "(bidirectional (fn (r) (gru 4 3 :reverse r :return-state true)))"
    call = (
        "(let ((sequence (a b)) (m x :state (list h (neg h))))"
        " (concat (squeeze (slice sequence :axis 1 :to 1) :axis 1) a b))"
    )
    layer = Layer(expression, X, "h (list f32 3)", call=call)
    h = layer.inputs[1]
    sequence, (a,) = walk("gru", layer, layer.x, state=(h,), at="forward.")
    back, (b,) = walk("gru", layer, layer.x, state=(-h,), reverse=True, at="backward.")
    layer.is_close_to(np.concatenate([sequence[:, 0], back[:, 0], a, b], -1))


def test_a_stack() -> None:
    layer = Layer("(recurrent-stack (list (lstm 4 3) (gru 3 2)))", X, LENGTHS, call=READ_SOME)
    lengths = layer.inputs[1]
    below, _ = walk("lstm", layer, layer.x, lengths=lengths, at="layers.0.")
    layer.is_close_to(walk("gru", layer, below, lengths=lengths, at="layers.1.")[0])


def test_the_states_of_a_stack() -> None:
    """Each layer begins with its own, and its last one stands at its place."""
    expression = "(recurrent-stack (for (i (range 2)) (gru 4 4 :return-state true)))"
    call = (
        "(let ((sequence (a b)) (m x :state (list h (neg h))))"
        " (concat sequence (unsqueeze a 1) (unsqueeze b 1) :axis 1))"
    )
    layer = Layer(expression, X, "h (list f32 4)", call=call)
    h = layer.inputs[1]
    below, (a,) = walk("gru", layer, layer.x, state=(h,), at="layers.0.")
    sequence, (b,) = walk("gru", layer, below, state=(-h,), at="layers.1.")
    layer.is_close_to(np.concatenate([sequence, a[:, None], b[:, None]], 1))


def test_gates_in_another_order() -> None:
    call = "(matmul x (transpose (gates (get m :w) (list 1 0 2))))"
    layer = Layer("(embedding 6 4)", X, call=call)
    layer.is_close_to(layer.x @ layer["w"][[2, 3, 0, 1, 4, 5]].T)


def test_the_names_of_torch() -> None:
    torch = pytest.importorskip("torch")
    made = torch.nn.LSTM(4, 3, num_layers=2, bidirectional=True)
    names = "(torch-recurrence-names 2)"
    model = program(
        "(def record (fields :x (list f32 5 4)))\n"
        '(def model (load-from "w.npz" (recurrent-stack (for (i (range 2)) (bidirectional'
        f" (fn (r) (lstm (if (= i 0) 4 6) 3 :reverse r))))) :rename {names}))"
    )
    keys = {parameter.key: parameter.type.shape for parameter in model.parameters().values()}
    assert keys == {name: tuple(p.shape) for name, p in made.named_parameters()}
    assert value_of("(sublist (torch-recurrence-names) 0 2)") == ("w-input", "weight_ih_l0")
