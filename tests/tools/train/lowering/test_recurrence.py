"""lstm and gru in JAX: the gradients that are found step by step are those of the whole loop."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.differentiated import apply, gradients, normal

GATES = {"lstm": 4, "gru": 3}
RECORDS, TIME, WIDTH, HIDDEN = 3, 5, 4, 2


def operands(name: str, dtype: Any) -> tuple[list[Array], dict[str, Any]]:
    """Every operand that there is."""
    rows = GATES[name] * HIDDEN
    states = ("h", "c") if name == "lstm" else ("h",)
    shapes = [(RECORDS, TIME, WIDTH), (rows, WIDTH), (rows, HIDDEN), (rows,), (rows,)]
    shapes += [(RECORDS, HIDDEN)] * len(states)
    inputs = [normal(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]
    return inputs, {"given": ("bias-input", "bias-recurrent", *states)}


def round_both_ways(x: jax.Array) -> jax.Array:
    """To bf16, and so is what comes back."""

    @jax.custom_vjp
    def rounded(x: jax.Array) -> jax.Array:
        return jax.lax.reduce_precision(x, 8, 7)

    rounded.defvjp(lambda x: (rounded(x), None), lambda _, g: (g,))
    return rounded(x)


def round_back(x: jax.Array) -> jax.Array:
    """As it is; what comes back is rounded to bf16."""

    @jax.custom_vjp
    def same(x: jax.Array) -> jax.Array:
        return x

    same.defvjp(lambda x: (x, None), lambda _, g: (jax.lax.reduce_precision(g, 8, 7),))
    return same(x)


#: How many positions each record has; 0 counts as 1.
LENGTHS = np.array([0, 3, 5], np.int32)


def plain(
    name: str,
    inputs: list[Any],
    *,
    reverse: bool,
    rounded: bool,
    lengths: Array | None = None,
    reset_after: bool = True,
) -> list[jax.Array]:
    """The layer as it is written down, which JAX differentiates by itself."""
    x, w, r, of_input, of_state, *states = inputs

    def multiplied(a: jax.Array, b: jax.Array) -> jax.Array:
        if not rounded:
            return jnp.matmul(a, b.T, precision="highest")
        a, b = round_both_ways(a), round_both_ways(b)
        return round_back(jnp.matmul(a, b.T, precision="highest"))

    sequence = {}
    for time in reversed(range(TIME)) if reverse else range(TIME):
        a = jnp.split(multiplied(x[:, time], w) + of_input, GATES[name], axis=-1)
        b = jnp.split(multiplied(states[0], r) + of_state, GATES[name], axis=-1)
        if name == "lstm":
            i, f, g, o = (left + right for left, right in zip(a, b, strict=True))
            c = jax.nn.sigmoid(f) * states[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
            after = [jax.nn.sigmoid(o) * jnp.tanh(c), c]
        else:
            gate, z = jax.nn.sigmoid(a[0] + b[0]), jax.nn.sigmoid(a[1] + b[1])
            old = gate * b[2]
            if not reset_after:
                old = multiplied(gate * states[0], r[2 * HIDDEN :]) + of_state[2 * HIDDEN :]
            after = [(1 - z) * jnp.tanh(a[2] + old) + z * states[0]]
        is_read = (time < np.maximum(lengths, 1))[:, None] if lengths is not None else True
        sequence[time] = jnp.where(is_read, after[0], 0)
        states = [jnp.where(is_read, *pair) for pair in zip(after, states, strict=True)]
    return [jnp.stack([sequence[time] for time in range(TIME)], 1), *states]


@pytest.mark.parametrize(
    ("name", "reset_after", "lengths", "reverse", "precision"),
    [
        *product(GATES, [True], [None], [False, True], ["f64", "f32", "bf16"]),
        *product(GATES, [True], [LENGTHS], [True], ["f64"]),
        *product(GATES, [True], [LENGTHS], [False], ["bf16"]),
        ("gru", False, None, False, "bf16"),
        ("gru", False, LENGTHS, True, "f64"),
    ],
)
def test_gradients(
    name: str, reset_after: bool, lengths: Array | None, reverse: bool, precision: str
) -> None:
    inputs, attributes = operands(name, np.float64 if precision == "f64" else np.float32)
    attributes["reverse"] = reverse
    attributes["precision"] = "bf16" if precision == "bf16" else "f32"
    if name == "gru":
        attributes["reset-after"] = reset_after
    given = inputs
    if lengths is not None:
        given = [*inputs, lengths]
        attributes["given"] += ("lengths",)

    @jax.jit
    def written(inputs: list[jax.Array]) -> list[jax.Array]:
        rounded = precision == "bf16"
        options: dict[str, Any] = {"lengths": lengths, "reset_after": reset_after}
        return plain(name, inputs, reverse=reverse, rounded=rounded, **options)

    results, pull = jax.vjp(written, [jnp.asarray(x) for x in inputs])
    tolerance = {"f64": 1e-12, "f32": 1e-5, "bf16": 1e-5}[precision]
    for made, want in zip(apply(name, given, **attributes), results, strict=True):
        np.testing.assert_allclose(made, want, rtol=tolerance, atol=tolerance)
    cotangents = [normal(*r.shape, seed=9 + i, dtype=r.dtype) for i, r in enumerate(results)]
    (wanted,) = pull([jnp.asarray(c) for c in cotangents])
    found = gradients(name, given, cotangents, **attributes)
    # A number that lies between two of bf16 may be rounded to either.
    relative = 2e-2 if precision == "bf16" else tolerance
    for index, (gradient, want) in enumerate(zip(found, wanted, strict=True)):
        assert gradient.dtype == inputs[index].dtype
        size = float(np.abs(want).max())
        np.testing.assert_allclose(gradient, want, rtol=tolerance, atol=relative * size)


@pytest.mark.parametrize("name", GATES)
def test_a_step_multiplies_once_and_once_back(name: str) -> None:
    """The products with the input, and for the weights, are outside of the loops."""
    inputs, given = operands(name, np.float32)

    def total(inputs: list[jax.Array]) -> jax.Array:
        return sum((y.sum() for y in apply(name, inputs, **given)), jnp.float32(0))

    program = jax.make_jaxpr(jax.grad(total))([jnp.asarray(x) for x in inputs])

    def products(jaxpr: Any) -> int:
        return sum(e.primitive.name == "dot_general" for e in jaxpr.eqns)

    def loops(jaxpr: Any) -> list[Any]:
        return [e.params["jaxpr"].jaxpr for e in jaxpr.eqns if e.primitive.name == "scan"]

    assert [products(body) for body in loops(program.jaxpr)] == [1, 1]
    # One with the input, and for the gradients of x, of the input's weights and of the state's.
    assert products(program.jaxpr) == 4
