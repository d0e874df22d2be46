"""lstm and gru: the products of all inputs at once, then a loop over time.

A step's gates are kept, and the gradient of `w-recurrent` is one product over all steps, after the
loop back: what differentiating the loop itself gives would add up a matrix at every step.  That is
done for gru with its reset before the product, where a step multiplies twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.tools.train.lowering.products import dot, is_rounded, multiply, narrow
from sexpgpu.tools.train.lowering.rule import Application, rule

_States: TypeAlias = tuple[jax.Array, ...]


@rule("lstm", "gru")
def recurrence(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    given = at.named(inputs)
    x, w, r = given["x"], given["w-input"], given["w-recurrent"]
    rounded = is_rounded(at, x)
    from_input = multiply(jnp.swapaxes(x, 0, 1), "tbi", w, "gi", "tbg", rounded=rounded)
    if "bias-input" in given:
        from_input = from_input + given["bias-input"]
    bias = given.get("bias-recurrent")
    if bias is None:
        bias = jnp.zeros(len(r), x.dtype)
    zero = jnp.zeros((len(x), r.shape[1]), x.dtype)
    names = ("h", "c") if at.operation.name == "lstm" else ("h",)
    states = tuple(given.get(name, zero) for name in names)
    is_read = None
    if "lengths" in given:
        lengths = jnp.maximum(given["lengths"], 1)
        is_read = jnp.arange(x.shape[1])[:, None, None] < lengths[:, None]
    loop = _Loop(at.operation.name, at.attributes["reverse"], rounded)
    run = _run if at.attributes.get("reset-after", True) else _run_reset_before
    sequence, finals = run(loop, from_input, r, bias, states, is_read)
    return [jnp.swapaxes(sequence, 0, 1), *finals]


@dataclass(frozen=True, slots=True)
class _Loop:
    """Which layer, which way along time, and how it multiplies."""

    name: str
    reverse: bool
    rounded: bool

    def narrow(self, array: jax.Array) -> jax.Array:
        """An operand as it is multiplied."""
        return narrow(array) if self.rounded else array

    def gates(self, from_input: jax.Array, from_state: jax.Array) -> jax.Array:
        """What the state after a step is found from: [batch, 4 · hidden].

        The gates of lstm; of gru r, z, and n's parts from input and state, which r stands between.
        """
        if self.name == "lstm":
            return from_input + from_state
        both = from_input.shape[-1] // 3 * 2
        added = from_input[..., :both] + from_state[..., :both]
        return jnp.concatenate([added, from_input[..., both:], from_state[..., both:]], axis=-1)

    def of_input(self, gates: jax.Array) -> jax.Array:
        """Of the gates' cotangents those of what the input adds."""
        return gates if self.name == "lstm" else gates[..., : gates.shape[-1] // 4 * 3]

    def of_state(self, gates: jax.Array) -> jax.Array:
        """Of the gates' cotangents those of what the state before adds."""
        if self.name == "lstm":
            return gates
        quarter = gates.shape[-1] // 4
        return jnp.concatenate([gates[..., : 2 * quarter], gates[..., 3 * quarter :]], axis=-1)

    def step(self, gates: jax.Array, states: _States) -> _States:
        """The states after a step."""
        if self.name == "lstm":
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            c = jax.nn.sigmoid(f) * states[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
            return jax.nn.sigmoid(o) * jnp.tanh(c), c
        r, z, new, old = jnp.split(gates, 4, axis=-1)
        return (_renewed(z, new + jax.nn.sigmoid(r) * old, states[0]),)


def _renewed(z: jax.Array, n: jax.Array, h: jax.Array) -> jax.Array:
    """gru's state after a step, from its gates before their functions."""
    z = jax.nn.sigmoid(z)
    return (1 - z) * jnp.tanh(n) + z * h


def _chosen(is_read: jax.Array | None, after: _States, before: _States) -> _States:
    """Of a record that has no such position, the states before."""
    if is_read is None:
        return after
    return tuple(jnp.where(is_read, *pair) for pair in zip(after, before, strict=True))


_Result: TypeAlias = tuple[jax.Array, _States]
#: The gates of every step, the states before it, `w-recurrent` as it is multiplied, and which
#: records have the position.
_Kept: TypeAlias = tuple[jax.Array, _States, jax.Array, jax.Array | None]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(
    loop: _Loop,
    from_input: jax.Array,
    r: jax.Array,
    bias: jax.Array,
    states: _States,
    is_read: jax.Array | None,
) -> _Result:
    """`h` after every step, [time, batch, hidden], and the last states."""
    return _forward(loop, from_input, r, bias, states, is_read)[0]


def _forward(
    loop: _Loop,
    from_input: jax.Array,
    r: jax.Array,
    bias: jax.Array,
    states: _States,
    is_read: jax.Array | None,
) -> tuple[_Result, _Kept]:
    r = loop.narrow(r)

    def step(
        before: _States, given: tuple[jax.Array, jax.Array | None]
    ) -> tuple[_States, tuple[jax.Array, jax.Array, _States]]:
        from_input, is_read = given
        from_state = dot(loop.narrow(before[0]), "bh", r, "gh", "bg") + bias
        gates = loop.gates(from_input, from_state)
        after = loop.step(gates, before)
        return _chosen(is_read, after, before), (_made(is_read, after[0]), gates, before)

    finals, (sequence, gates, before) = lax.scan(
        step, states, (from_input, is_read), reverse=loop.reverse
    )
    return (sequence, finals), (gates, before, r, is_read)


def _made(is_read: jax.Array | None, h: jax.Array) -> jax.Array:
    """What a step adds to the sequence: zeros where a record has no such position."""
    return h if is_read is None else jnp.where(is_read, h, 0)


def _backward(
    loop: _Loop, kept: _Kept, cotangents: _Result
) -> tuple[jax.Array, jax.Array, jax.Array, _States, None]:
    gates, before, r, is_read = kept
    of_sequence, of_finals = cotangents

    def step(
        after: _States, given: tuple[jax.Array, _States, jax.Array, jax.Array | None]
    ) -> tuple[_States, jax.Array]:
        gates, before, of_result, is_read = given
        _, pull = jax.vjp(loop.step, gates, before)
        nothing = tuple(jnp.zeros_like(state) for state in after)
        of_gates, (of_h, *others) = pull(
            _chosen(is_read, (after[0] + of_result, *after[1:]), nothing)
        )
        rounded = loop.narrow(loop.of_state(of_gates))
        of_before = (of_h + dot(rounded, "bg", r, "gh", "bh"), *others)
        return _chosen(is_read, of_before, after), of_gates

    of_states, of_gates = lax.scan(
        step, of_finals, (gates, before, of_sequence, is_read), reverse=not loop.reverse
    )
    of_state = loop.of_state(of_gates)
    of_r = dot(loop.narrow(of_state), "tbg", loop.narrow(before[0]), "tbh", "gh")
    return loop.of_input(of_gates), of_r, jnp.sum(of_state, axis=(0, 1)), of_states, None


_run.defvjp(_forward, _backward)


def _run_reset_before(
    loop: _Loop,
    from_input: jax.Array,
    r: jax.Array,
    bias: jax.Array,
    states: _States,
    is_read: jax.Array | None,
) -> _Result:
    """gru whose n reads the product of the reset state."""
    both = len(r) // 3 * 2

    def step(
        before: _States, given: tuple[jax.Array, jax.Array | None]
    ) -> tuple[_States, jax.Array]:
        from_input, is_read = given
        (h,) = before
        product = partial(multiply, rounded=loop.rounded)
        added = product(h, "bh", r[:both], "gh", "bg") + bias[:both]
        reset, z = jnp.split(from_input[..., :both] + added, 2, axis=-1)
        old = product(jax.nn.sigmoid(reset) * h, "bh", r[both:], "gh", "bg") + bias[both:]
        after = (_renewed(z, from_input[..., both:] + old, h),)
        return _chosen(is_read, after, before), _made(is_read, after[0])

    finals, sequence = lax.scan(step, states, (from_input, is_read), reverse=loop.reverse)
    return sequence, finals
