"""Gradients that do not look at what nobody chose.

The chain rule multiplies what comes back from a result by the function's slope.  Where a `where`
did not choose the result, 0 comes back; a slope that is infinite or NaN there would make NaN of
it, and that NaN would be in every weight a step later: `(where (> p 0) (* p (log p)) 0)` at 0, or
records whose missing values are NaN.  So what comes back as 0 stays 0.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp


def shielded(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """The function, of float arrays element by element, with 0 as its gradient where 0 comes back.

    Operands have one shape; so has the result, or 1 where it is reduced.  There is no forward mode
    of differentiation.
    """

    @jax.custom_vjp
    def apart(*arrays: jax.Array) -> jax.Array:
        return function(*arrays)

    def forward(*arrays: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        return function(*arrays), arrays

    def backward(arrays: tuple[jax.Array, ...], cotangent: jax.Array) -> tuple[jax.Array, ...]:
        # Under jit the function is not computed twice: XLA sees that it is the same.
        gradients = jax.vjp(function, *arrays)[1](cotangent)
        unasked = cotangent == 0
        return tuple(jnp.where(unasked, jnp.zeros_like(g), g) for g in gradients)

    apart.defvjp(forward, backward)

    return apart
