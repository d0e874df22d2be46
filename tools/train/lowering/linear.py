"""Products of matrices, and Einstein's summation."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from sexpgpu.export.operations.equation import Equation, diagonal, parse_equation
from sexpgpu.tools.train.lowering.products import is_narrow, is_rounded, multiply
from sexpgpu.tools.train.lowering.rule import Application, rule

#: Letters for the axes that broadcast, counted from the first axis of the result.
_BATCH = 0x3B1


@rule("matmul")
def matmul(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    a, b = inputs
    batch = at.results[0].shape
    if a.ndim > 1:
        batch = batch[:-1]
    if b.ndim > 1:
        batch = batch[:-1]
    a, left = _broadcasting(a, "ik"[-a.ndim :], batch)
    b, right = _broadcasting(b, "kj" if b.ndim > 1 else "k", batch)
    letters = "".join(chr(_BATCH + axis) for axis in range(len(batch)))
    # An axis that neither operand has is of length 1: both broadcast along it.
    result = "".join(c for c in letters + "ij" if c in left + right)
    product = multiply(a, left, b, right, result, rounded=is_narrow(at, a))
    return [product.reshape(at.results[0].shape)]


def _broadcasting(x: jax.Array, own: str, batch: Sequence[object]) -> tuple[jax.Array, str]:
    """The operand without the axes that broadcast, and its letters."""
    before = x.ndim - len(own)
    first = len(batch) - before
    kept = [axis for axis in range(before) if x.shape[axis] == batch[first + axis]]
    shape = [x.shape[axis] for axis in kept]
    letters = "".join(chr(_BATCH + first + axis) for axis in kept)
    return x.reshape((*shape, *x.shape[before:])), letters + own


@rule("einsum")
def einsum(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """From left to right, as the reference does it: what is rounded is what it rounds."""
    equation = parse_equation(at.attributes["equation"], [x.shape for x in inputs])
    rounded = is_rounded(at, inputs[0]) or (is_narrow(at, inputs[0]) and _is_single(equation))
    value, letters = _prepare(inputs[0], equation.operands[0])
    for index in range(1, len(inputs)):
        needed = equation.needed(index)
        other, word = _prepare(inputs[index], equation.operands[index])
        value, letters = _sum(value, letters, word + needed)
        other, word = _sum(other, word, letters + needed)
        result = equation.step(letters, word, needed).result
        if index == len(inputs) - 1 and set(result) == set(equation.result):
            result = equation.result
        value, letters = multiply(value, letters, other, word, result, rounded=rounded), result
    value, letters = _sum(value, letters, equation.result)
    return [value.transpose([letters.index(letter) for letter in equation.result])]


def _is_single(equation: Equation) -> bool:
    """Whether it is one product, of operands as they come."""
    if len(equation.operands) != 2:
        return False
    left, right = equation.operands
    return all(
        letter in other + equation.result
        for word, other in ((left, right), (right, left))
        for letter in word.replace(" ", "")
    )


def _prepare(x: jax.Array, letters: str) -> tuple[jax.Array, str]:
    """The operand with each of its letters once: axes that broadcast gone, diagonals taken."""
    x = x.reshape([d for d, c in zip(x.shape, letters, strict=True) if c != " "])
    letters = letters.replace(" ", "")
    while pair := diagonal(letters):
        first, later = pair
        x = jnp.diagonal(x, axis1=first, axis2=later)
        letters = "".join(c for i, c in enumerate(letters) if i not in pair) + letters[first]
    return x, letters


def _sum(x: jax.Array, letters: str, needed: str) -> tuple[jax.Array, str]:
    axes = tuple(axis for axis, letter in enumerate(letters) if letter not in needed)
    if not axes:
        return x, letters
    kept = "".join(letter for letter in letters if letter in needed)
    return jnp.sum(x, axis=axes, dtype=x.dtype), kept
