"""The conversion between dtypes."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from sexpgpu.export.graph.types import DType
from sexpgpu.tools.train.lowering.rule import Application, rule


@rule("cast")
def cast(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """bf16 is reached through f32; the gradient goes back through floats, and ends elsewhere."""
    x, dtype = inputs[0], at.results[0].dtype
    if jnp.issubdtype(x.dtype, jnp.floating) and dtype.is_integer:
        return [_to_integer(x, dtype)]
    if dtype is DType.BOOL:
        return [x != 0]
    return [x.astype(dtype.numpy)]


def _to_integer(x: jax.Array, dtype: DType) -> jax.Array:
    """Cut towards zero; what is outside is the least or greatest integer, and NaN is 0."""
    info = np.iinfo(dtype.numpy)
    beyond = -float(info.min)
    inside = jnp.where(jnp.abs(x) < beyond, x, jnp.zeros_like(x)).astype(dtype.numpy)
    above = jnp.where(x >= beyond, jnp.asarray(info.max, dtype.numpy), inside)
    return jnp.where(x <= -beyond, jnp.asarray(info.min, dtype.numpy), above)
