"""Activations of neural networks: slopes are finite wherever the functions are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.export.operations.activations import GELU_CUBIC
from sexpgpu.tools.train.lowering.elementwise import curved, plain
from sexpgpu.tools.train.lowering.rule import Application, rule
from sexpgpu.tools.train.lowering.shielding import shielded

#: From here on the approximation of gelu by tanh is x or 0 in every dtype.
_GELU_SATURATES = 30.0
_GATE = 2 * math.sqrt(2 / math.pi)


@rule("leaky-relu")
def leaky_relu(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """The slope at 0 is 1."""
    x = inputs[0]
    return [jnp.where(x < 0, x * x.dtype.type(at.attributes["slope"]), x)]


@rule("elu")
def elu(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """The exponential is of nothing positive, so that no slope overflows."""
    alpha = inputs[0].dtype.type(at.attributes["alpha"])

    def function(x: jax.Array) -> jax.Array:
        return jnp.where(x < 0, jnp.expm1(jnp.where(x < 0, x, 0)) * alpha, x)

    return [shielded(function)(*inputs)]


@rule("gelu")
def gelu(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """The formulas of the reference, in which 1 + erf and 1 + tanh cancel far below 0: to their
    last digits erfc(-x) is 1 + erf(x), and sigmoid(2x) is (1 + tanh(x)) / 2."""
    return [(shielded(_gelu_of_tanh) if at.attributes["tanh"] else _gelu)(*inputs)]


@jax.custom_vjp
def _gelu(x: jax.Array) -> jax.Array:
    return 0.5 * x * lax.erfc(-x / math.sqrt(2))


def _gelu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _gelu(x), x


def _gelu_backward(x: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    """Φ(x) + x φ(x), of x alone: the slope of erfc would keep two more arrays of this size.

    A slope adds up with others, so that Φ may be off by the last digit of 1; erf takes half as long
    as erfc.  What nobody chose may be NaN.
    """
    below = 0.5 * (1 + lax.erf(x / math.sqrt(2)))
    slope = below + x * jnp.exp(-0.5 * (x * x)) / math.sqrt(2 * math.pi)
    return (jnp.where(cotangent == 0, 0, cotangent * slope),)


_gelu.defvjp(_gelu_forward, _gelu_backward)


def _gelu_of_tanh(x: jax.Array) -> jax.Array:
    # The cube would overflow.
    inner = jnp.clip(x, -_GELU_SATURATES, _GELU_SATURATES)
    return x * lax.logistic(_GATE * (inner + GELU_CUBIC * (inner * inner * inner)))


def _silu(x: jax.Array) -> jax.Array:
    return x * lax.logistic(x)


def _softplus(x: jax.Array) -> jax.Array:
    return jnp.logaddexp(x, jnp.zeros_like(x))


def _hard_swish(x: jax.Array) -> jax.Array:
    # XLA multiplies by 1/6; in this order what is rounded by that does not move the zero at -3.
    return x * (jnp.clip(x + 3, 0, 6) / 6)


# Its slope at 0 is 0.
plain("relu", jax.nn.relu)
curved("sigmoid", lax.logistic)
curved("softplus", _softplus)
curved("silu", _silu)
curved("hard-swish", _hard_swish)
