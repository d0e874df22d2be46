"""Comparisons of two tensors, whether numbers are finite, and the choice between two tensors."""

from __future__ import annotations

import jax.numpy as jnp

from sexpgpu.tools.train.lowering.elementwise import plain

plain("=", jnp.equal)
plain("!=", jnp.not_equal)
plain("<", jnp.less)
plain("<=", jnp.less_equal)
plain(">", jnp.greater)
plain(">=", jnp.greater_equal)
plain("is-nan", jnp.isnan)
plain("is-finite", jnp.isfinite)
plain("where", jnp.where)
