"""How operations that are one function of their operands are put into the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from sexpgpu.tools.train.lowering.rule import Application, rule
from sexpgpu.tools.train.lowering.shielding import shielded


def plain(name: str, function: Callable[..., jax.Array]) -> None:
    """An operation whose slope is the same everywhere, or that has none."""

    @rule(name)
    def apply(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
        return [function(*inputs)]


def curved(
    name: str,
    function: Callable[..., jax.Array],
    of_integers: Callable[..., jax.Array] | None = None,
) -> None:
    """An operation whose slope depends on where it is, so that floats are shielded.

    `of_integers` is what it is over integers, where that is another function.  Either is given
    operands of one shape.
    """
    of_floats, exact = shielded(function), of_integers or function

    @rule(name)
    def apply(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
        arrays = jnp.broadcast_arrays(*inputs)
        is_float = jnp.issubdtype(arrays[0].dtype, jnp.floating)
        return [of_floats(*arrays) if is_float else exact(*arrays)]
