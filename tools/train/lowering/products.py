"""Products of tensors by the letters of their axes, in f32 or of operands rounded to bf16.

f32 is multiplied as f32 on every device: no TF32.  Rounded operands are multiplied in bf16 and
summed in f32, and so are the products that their gradients are.

On a CPU the rounded operands are multiplied in f32, which is exact: XLA's CPU has products of bf16
that give f32 for some layouts alone, and does not choose those, so that a program fails as it runs
(`BF16 x BF16 = F32`).
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.tools.train.lowering.rule import Application


def is_rounded(at: Application, operand: jax.Array) -> bool:
    """Whether `precision` has operands of this dtype rounded to bf16."""
    return bool(operand.dtype == jnp.float32 and at.attributes["precision"] == "bf16")


def is_narrow(at: Application, operand: jax.Array) -> bool:
    """Whether the operands of a single product are rounded, or were bf16 to begin with.

    It is the same product then, by the faster way; the cotangent of its result is that of bf16.
    """
    return is_rounded(at, operand) or at.narrow


def multiply(
    a: jax.Array, left: str, b: jax.Array, right: str, result: str, *, rounded: bool
) -> jax.Array:
    """The sum, over the letters that the result lacks, of the products of a and b.

    Each word has a letter once; a letter that only one operand has is in the result.
    """
    if rounded:
        return _rounded(left, right, result, a, b)
    if jnp.issubdtype(a.dtype, jnp.floating):
        return _exact(left, right, result, a, b)
    return dot(a, left, b, right, result)


def dot(a: jax.Array, left: str, b: jax.Array, right: str, result: str) -> jax.Array:
    """The same of operands as they are; the product of bf16 is f32."""
    both = [letter for letter in left if letter in right]
    shared = [letter for letter in both if letter in result]
    summed = [letter for letter in both if letter not in result]
    word = "".join(summed)
    if len(word) > 1 and left.startswith(word) and right.startswith(word):
        # As one axis: over several XLA's CPU writes down the transpose of an operand, and computes
        # it anew for that.
        a, left = _merged(a, left, len(word))
        b, right = _merged(b, right, len(word))
        summed = [word[0]]
    in_bf16 = a.dtype == jnp.bfloat16
    product = lax.dot_general(
        a,
        b,
        (
            ([left.index(c) for c in summed], [right.index(c) for c in summed]),
            ([left.index(c) for c in shared], [right.index(c) for c in shared]),
        ),
        precision=lax.Precision.DEFAULT if in_bf16 else lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32 if in_bf16 else None,
    )
    letters = [*shared, *(c for c in left if c not in right), *(c for c in right if c not in left)]
    return product.transpose([letters.index(letter) for letter in result])


def _merged(x: jax.Array, letters: str, count: int) -> tuple[jax.Array, str]:
    """Its first axes as one."""
    return x.reshape((math.prod(x.shape[:count]), *x.shape[count:])), letters[0] + letters[count:]


def narrow(operand: jax.Array) -> jax.Array:
    """A rounded operand as `dot` takes it: bf16, on a CPU f32 of 8 bits of mantissa."""
    if jax.default_backend() == "cpu":
        return round_f32(operand.astype(jnp.float32))
    return operand.astype(jnp.bfloat16)


def round_f32(operand: jax.Array) -> jax.Array:
    """To bf16's exponent and mantissa; XLA may drop a cast there and back."""
    return lax.reduce_precision(operand, 8, 7)


def _gradients(
    left: str, right: str, result: str, a: jax.Array, b: jax.Array, cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The gradients of a and b, each a product that comes out in its operand's own order.

    JAX's own gradient of b is the transpose of a product, for which XLA's CPU transposes the
    cotangent: of a matrix of weights that takes up to twice as long.  Where there are axes that all
    three share, as the heads of an attention, small products are better off with the smaller of
    the two first.
    """
    is_stack = any(letter in right and letter in result for letter in left)
    if is_stack and a.size > cotangent.size:
        other = dot(cotangent, result, a, left, right)
    else:
        other = dot(a, left, cotangent, result, right)
    return dot(cotangent, result, b, right, left), other


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _exact(left: str, right: str, result: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return dot(a, left, b, right, result)


def _exact_forward(
    left: str, right: str, result: str, a: jax.Array, b: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return dot(a, left, b, right, result), (a, b)


def _exact_backward(
    left: str,
    right: str,
    result: str,
    kept: tuple[jax.Array, jax.Array],
    cotangent: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    return _gradients(left, right, result, *kept, cotangent)


_exact.defvjp(_exact_forward, _exact_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _rounded(left: str, right: str, result: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return dot(narrow(a), left, narrow(b), right, result)


def _rounded_forward(
    left: str, right: str, result: str, a: jax.Array, b: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    a, b = narrow(a), narrow(b)
    return dot(a, left, b, right, result), (a.astype(jnp.bfloat16), b.astype(jnp.bfloat16))


def _rounded_backward(
    left: str,
    right: str,
    result: str,
    kept: tuple[jax.Array, jax.Array],
    cotangent: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    a, b = kept
    return _gradients(left, right, result, narrow(a), narrow(b), narrow(cotangent))


_rounded.defvjp(_rounded_forward, _rounded_backward)
