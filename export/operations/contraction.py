"""How an einsum is carried out, from left to right, in NumPy and in ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array, Dimension, Shape
from sexpgpu.export.graph.types import multiply as dimension_product
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.equation import Equation, Step, diagonal
from sexpgpu.export.operations.products import factor, multiply, multiply_matrices


def contract(equation: Equation, operands: Sequence[Array], attributes: Attributes) -> Array:
    """The result in the dtype in which products are summed: f32 for bf16, else the operands'."""
    value, letters = _prepare(operands[0], equation.operands[0])
    for index in range(1, len(operands)):
        needed = equation.needed(index)
        other, word = _prepare(operands[index], equation.operands[index])
        value, letters = _sum(value, letters, word + needed)
        other, word = _sum(other, word, letters + needed)
        step = equation.step(letters, word, needed)
        a, b = factor(value, attributes), factor(other, attributes)
        value = _einsum(a, letters, b, word, step.result)
        letters = step.result
    value, letters = _sum(value, letters, equation.result)
    return value.transpose([letters.index(letter) for letter in equation.result])


def _prepare(array: Array, letters: str) -> tuple[Array, str]:
    """The operand with each of its letters once: axes that broadcast gone, diagonals taken."""
    array = factor(array, {"precision": "f32"})
    array = array.reshape([d for d, c in zip(array.shape, letters, strict=True) if c != " "])
    letters = letters.replace(" ", "")
    while pair := diagonal(letters):
        first, later = pair
        # NumPy puts the diagonal last.
        array = np.diagonal(array, axis1=first, axis2=later)
        letters = without(letters, pair) + letters[first]
    return array, letters


def _sum(array: Array, letters: str, needed: str) -> tuple[Array, str]:
    axes = tuple(axis for axis, letter in enumerate(letters) if letter not in needed)
    kept = "".join(letter for letter in letters if letter in needed)
    return np.sum(array, axis=axes, dtype=array.dtype), kept


def _einsum(a: Array, left: str, b: Array, right: str, result: str) -> Array:
    """The product of two, by NumPy; it takes numbers for letters of any alphabet."""
    number = {letter: index for index, letter in enumerate(dict.fromkeys(left + right))}
    axes = [[number[letter] for letter in letters] for letters in (left, right, result)]
    return np.asarray(np.einsum(a, axes[0], b, axes[1], axes[2], optimize=True))


@dataclass(frozen=True, slots=True)
class _Tensor:
    """An ONNX value and the letters of its axes."""

    value: OnnxValue
    letters: str


class OnnxContraction:
    """Writes the contraction as Transpose, Reshape, Mul, ReduceSum and MatMul."""

    def __init__(self, onnx: Lowering, equation: Equation, *, rounded: bool) -> None:
        self.onnx = onnx
        self.equation = equation
        self.rounded = rounded

    def run(self, operands: Sequence[OnnxValue]) -> str:
        """The name of the result."""
        words = self.equation.operands
        tensor = self.prepare(operands[0], words[0])
        for index in range(1, len(operands)):
            needed = self.equation.needed(index)
            other = self.prepare(operands[index], words[index])
            tensor = self.sum(tensor, other.letters + needed)
            other = self.sum(other, tensor.letters + needed)
            tensor = self.multiply(tensor, other, needed)
        tensor = self.sum(tensor, self.equation.result)
        return self.order(tensor, self.equation.result).value.name

    def prepare(self, value: OnnxValue, word: str) -> _Tensor:
        """The operand with each of its letters once, as in `contract`."""
        letters = word.replace(" ", "")
        if letters != word:
            axes = [axis for axis, letter in enumerate(word) if letter == " "]
            name = self.onnx.add("Squeeze", value.name, self.onnx.ints(axes))
            value = OnnxValue(name, value.type.with_shape(self.equation.shape(letters)))
        tensor = _Tensor(value, letters)
        while pair := diagonal(tensor.letters):
            tensor = self.take_diagonal(tensor, *pair)
        return tensor

    def take_diagonal(self, tensor: _Tensor, first: int, later: int) -> _Tensor:
        """Every (n + 1)-th of the n² elements that the two axes have as one."""
        letter = tensor.letters[first]
        rest = without(tensor.letters, (first, later))
        size = self.equation.sizes[letter]
        assert isinstance(size, int)
        axes = [*(i for i in range(len(tensor.letters)) if i not in (first, later)), first, later]
        name = self.onnx.add("Transpose", tensor.value.name, perm=axes)
        name = self.onnx.reshape(name, (*self.equation.shape(rest), size * size))
        places = self.onnx.ints(range(0, size * size, size + 1))
        name = self.onnx.add("Gather", name, places, axis=len(rest))
        return self.tensor(name, rest + letter, tensor)

    def sum(self, tensor: _Tensor, needed: str) -> _Tensor:
        """Without the letters that nothing needs.

        ONNX Runtime sums integers in floats, so that large ones lose digits: they are multiplied
        by ones instead.
        """
        axes = [axis for axis, letter in enumerate(tensor.letters) if letter not in needed]
        if not axes:
            return tensor
        if tensor.value.dtype.is_integer:
            for letter in [tensor.letters[axis] for axis in axes]:
                one = self.onnx.scalar(1, tensor.value.dtype)
                ones = self.onnx.add("Expand", one, self.onnx.shape(self.equation.shape(letter)))
                rest = tensor.letters.replace(letter, "")
                tensor = self.multiply(tensor, self.tensor(ones, letter, tensor), rest)
            return tensor
        name = self.onnx.add("ReduceSum", tensor.value.name, self.onnx.ints(axes), keepdims=0)
        return self.tensor(name, without(tensor.letters, axes), tensor)

    def order(self, tensor: _Tensor, letters: str) -> _Tensor:
        """The same with its axes in another order."""
        if tensor.letters == letters:
            return tensor
        axes = [tensor.letters.index(letter) for letter in letters]
        name = self.onnx.add("Transpose", tensor.value.name, perm=axes)
        return self.tensor(name, letters, tensor)

    def multiply(self, left: _Tensor, right: _Tensor, needed: str) -> _Tensor:
        """The product of two, whose inner letters are summed."""
        if self.place(right, left) < self.place(left, right):
            left, right = right, left
        step = self.equation.step(left.letters, right.letters, needed)
        batch = self.equation.shape(step.batch)
        # Without batch letters the rows need not become one axis.
        several = step.left != "" and not batch
        rows = 1 if several else self.size(step.left)
        columns, inner = self.size(step.right), self.size(step.inner)
        if not step.inner or rows is None or columns is None or inner is None:
            return self.sum(self.spread(left, right, step), needed)
        lead = self.equation.shape(step.left) if several else (*batch, rows)
        a = self.shaped(self.order(left, step.batch + step.left + step.inner), (*lead, inner))
        if not step.batch and right.letters == step.right + step.inner:
            stored = self.shaped(right, (columns, inner))
            name = self.onnx.add("Transpose", stored.name, perm=[1, 0])
            b = OnnxValue(name, stored.type.with_shape((inner, columns)), transpose_of=stored)
        else:
            ordered = self.order(right, step.batch + step.inner + step.right)
            b = self.shaped(ordered, (*batch, inner, columns))
        type = a.type.with_shape((*lead, columns))
        name = multiply_matrices(self.onnx, a, b, type, rounded=self.rounded)
        shape = self.equation.shape(step.result)
        if type.shape != shape:
            name = self.onnx.reshape(name, shape)
        return self.tensor(name, step.result, left)

    def place(self, tensor: _Tensor, other: _Tensor) -> int:
        """Where a factor belongs: the lower goes to the left of the product.

        A weight goes to the right, for which runtimes prepare it; else the factor whose own axes
        come first in the result to the left.  Bits of a row do not depend on how many rows there
        are, those of a column may depend on how many columns there are.
        """
        result = self.equation.result
        own = [result.find(c) for c in tensor.letters if c in result and c not in other.letters]
        return min(own, default=len(result)) + (1 + len(result)) * tensor.value.weight

    def spread(self, left: _Tensor, right: _Tensor, step: Step) -> _Tensor:
        """The products before they are summed, elementwise."""
        letters = step.result + step.inner
        names = []
        for tensor in (left, right):
            own = "".join(letter for letter in letters if letter in tensor.letters)
            name = self.order(tensor, own).value.name
            axes = [axis for axis, letter in enumerate(letters) if letter not in own]
            names.append(self.onnx.add("Unsqueeze", name, self.onnx.ints(axes)) if axes else name)
        return self.tensor(multiply(self.onnx, "Mul", *names, rounded=self.rounded), letters, left)

    def size(self, letters: str) -> Dimension | None:
        """How many elements the axes have as one; None where that has no name."""
        size: Dimension | None = 1
        for letter in letters:
            size = None if size is None else dimension_product(size, self.equation.sizes[letter])
        return size

    def shaped(self, tensor: _Tensor, shape: Shape) -> OnnxValue:
        if tensor.value.shape == shape:
            return tensor.value
        name = self.onnx.reshape(tensor.value.name, shape)
        return OnnxValue(name, tensor.value.type.with_shape(shape))

    def tensor(self, name: str, letters: str, like: _Tensor) -> _Tensor:
        type = like.value.type.with_shape(self.equation.shape(letters))
        return _Tensor(OnnxValue(name, type), letters)


def without(letters: str, axes: Sequence[int]) -> str:
    """The letters of the other axes."""
    return "".join(letter for axis, letter in enumerate(letters) if axis not in axes)
