"""Rounding, exponentials, roots, and the functions of the circle."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from sexpgpu.tools.train.lowering.elementwise import curved, plain

plain("floor", jnp.floor)
plain("ceil", jnp.ceil)
plain("round", jnp.rint)
curved("exp", jnp.exp)
curved("log", jnp.log)
curved("log1p", jnp.log1p)
curved("expm1", jnp.expm1)
curved("sqrt", jnp.sqrt)
curved("rsqrt", lax.rsqrt)
curved("sin", jnp.sin)
curved("cos", jnp.cos)
curved("tan", jnp.tan)
curved("tanh", jnp.tanh)
curved("erf", lax.erf)
curved("erfc", lax.erfc)
curved("lgamma", lax.lgamma)
curved("asin", jnp.arcsin)
curved("acos", jnp.arccos)
curved("atan", jnp.arctan)
curved("atan2", jnp.arctan2)
curved("sinh", jnp.sinh)
curved("cosh", jnp.cosh)
curved("asinh", jnp.arcsinh)
curved("acosh", jnp.arccosh)
curved("atanh", jnp.arctanh)
