"""Linear algebra: products of matrices, and Einstein's summation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import NUMBERS, Array, Batch, Shape, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.contraction import OnnxContraction, contract
from sexpgpu.export.operations.equation import diagonal, parse_equation
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, Rows, operation
from sexpgpu.export.operations.products import (
    PRECISION,
    factor,
    is_rounded,
    multiply_matrices,
)
from sexpgpu.export.operations.rules import broadcast, elementwise_fate, fail_batch, fail_shape
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class MatMul(Operation):
    """The product of matrices: result[…, i, j] = Σ_k a[…, i, k] · b[…, k, j].

    NumPy's rules: axes before the last two broadcast; an operand of rank 1 is a row on the left
    and a column on the right, and its axis is gone from the result.  Integers wrap around; bf16
    is summed in f32 and rounded once.  `:precision :bf16` rounds f32 operands to bf16 and sums in
    f32; it is what `--precision bf16` sets.

    ONNX: MatMul; Gemm with `transB` where b is the transpose of a matrix, which is then read as it
    is stored.  A product that is an output stays MatMul.
    """

    name = "matmul"
    family = "linear"
    signature = signature(Operand("a", NUMBERS), Operand("b", NUMBERS), PRECISION)
    constraints = (
        "Both operands have at least one axis.",
        "The last axis of a is as long as the second last of b (the only one, if its rank is 1).",
        "The axes before the last two broadcast.",
    )
    example = (
        "(matmul (tensor (list (list 1.0 2.0) (list 3.0 4.0))) (tensor (list 1.0 10.0)))",
        "[21.0 43.0]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        a, b = inputs
        if not a.rank or not b.rank:
            fail_shape(
                "`matmul` takes vectors and matrices",
                came=f"{a} and {b}",
                help="multiply by a number with `*`",
            )
        left, right = _matrices(a.shape, b.shape)
        if left[-1] != right[-2]:
            fail_shape(
                "the inner axes of `matmul` differ",
                came=f"{a} and {b}",
                expected=f"{left[-1]}, the last axis of `a`, to be {right[-2]}, the rows of `b`",
                help="`(transpose b)` swaps the last two axes",
            )
        batch = broadcast("matmul", [left[:-2], right[:-2]])
        shape = batch + left[-2:-1] * (a.rank > 1) + right[-1:] * (b.rank > 1)
        return [a.with_shape(shape)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        a, b = (factor(array, attributes) for array in inputs)
        if a.ndim > 2 and b.ndim == 2 and a.size:
            # All rows at once: NumPy goes from matrix to matrix.
            product = np.matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
        else:
            product = np.asarray(np.matmul(a, b))
        return [product.astype(inputs[0].dtype, copy=False)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        a, b = inputs
        left, right = _matrices(a.shape, b.shape)
        batch = broadcast("matmul", [left[:-2], right[:-2]])
        full = a.type.with_shape(batch + left[-2:-1] + right[-1:])
        product = multiply_matrices(
            onnx,
            _with_shape(onnx, a, left),
            _with_shape(onnx, b, right),
            full,
            rounded=is_rounded(attributes, a.dtype),
        )
        same = full.shape == results[0].shape
        return [product if same else onnx.reshape(product, results[0].shape)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        a, b = inputs
        rank = inputs[operand].rank
        # The place from the end: -1 and -2 are the matrix's, what is before broadcasts.
        place = axis - rank
        gone = int(a.rank == 1) + int(b.rank == 1)
        if place < -2:
            left, right = _matrices(a.shape, b.shape)
            full = a.with_shape(broadcast("matmul", [left[:-2], right[:-2]]))
            batch = inputs[operand].with_shape(inputs[operand].shape[:-2])
            return [elementwise_fate(batch, axis, full)]
        if operand == 0 and place == -2:
            return [Apart(results[0].rank - 2 + gone)]
        if operand == 1 and place == -1 and rank > 1:
            return [Apart(results[0].rank - 1)]
        return [WHOLE]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        """Rows alone: the bits of a column may depend on how many columns are computed."""
        is_column = rows.axis == rows.result.rank - 1 and rows.inputs[1].type.rank > 1
        return None if is_column else (rows.inputs, attributes)


@operation
class Einsum(Operation):
    """Einstein's summation: a letter for every axis; axes of one letter run together, and those
    whose letter the result lacks are summed.

    `(einsum "bij,bjk->bik" a b)`.  The operands are multiplied from left to right, and a letter is
    summed as soon as nothing further needs it.  `...` stands for further axes, which broadcast; a
    letter that one operand has twice is its diagonal; without `->` the result has the letters that
    occur once, in alphabetical order.  Integers wrap around; bf16 is summed in f32 and rounded
    once.  `:precision :bf16` rounds what is multiplied, f32, to bf16, as for `matmul`.

    ONNX: Transpose, Reshape, Mul, ReduceSum and MatMul, whose bits do not depend on how many
    records a call has, as those of Einsum do.
    """

    name = "einsum"
    family = "linear"
    signature = signature(
        Attribute("equation", Kind.STRING, keyword=False),
        PRECISION,
        Operand("operands", NUMBERS, variadic=True),
    )
    constraints = (
        "The equation names as many operands as are given, by ASCII letters.",
        "An operand's word has a letter for each of its axes, or `...` for those between.",
        "Axes of one letter have one size.",
        "The result's letters occur in an operand, and each once in the result.",
        "The size of an axis whose diagonal is taken is not the batch.",
    )
    example = (
        '(einsum "ij,j->i" (tensor (list (list 1.0 2.0) (list 3.0 4.0))) (tensor (list 1.0 10.0)))',
        "[21.0 43.0]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        equation = parse_equation(attributes["equation"], [type.shape for type in inputs])
        for letters in equation.operands:
            own = letters.replace(" ", "")
            pair = diagonal(own)
            if pair and isinstance(equation.sizes[own[pair[0]]], Batch):
                fail_batch(
                    "`einsum` takes the diagonal of two axes that are both the batch",
                    came=f"`{letters}` of {attributes['equation']}",
                )
        return [inputs[0].with_shape(equation.shape(equation.result))]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        equation = parse_equation(attributes["equation"], [array.shape for array in inputs])
        return [contract(equation, inputs, attributes).astype(inputs[0].dtype)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        equation = parse_equation(attributes["equation"], [value.shape for value in inputs])
        rounded = is_rounded(attributes, results[0].dtype)
        return [OnnxContraction(onnx, equation, rounded=rounded).run(inputs)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        equation = parse_equation(attributes["equation"], [type.shape for type in inputs])
        letter = equation.operands[operand][axis]
        found = equation.result.find(letter)
        return [WHOLE if found < 0 else Apart(found)]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        """An operand that has got the batch has its letter before its own now.

        Where axes are summed, only the result's second axis can be reduced, of operands that have
        the batch themselves: its rows are rows of every product then, as in the whole.
        """
        text: str = attributes["equation"].replace(" ", "")
        left, arrow, result = text.partition("->")
        words = left.split(",")
        named = "." not in text
        if not arrow or (named and any(word.count(result[rows.axis]) > 1 for word in words)):
            return None
        has_got = [
            type.rank != len(word)
            if "." not in word
            else axis is not None and type.shape[axis] != rows.count
            for word, type, axis in zip(
                words, [value.type for value in rows.inputs], rows.input_axes, strict=True
            )
        ]
        if set(left) - set(result) - set(",.") and (rows.axis != 1 or any(has_got)):
            return None
        batch = f"{result[0]}..." if result[0] != "." else "..."
        changed = [
            batch + word if got and "." not in word else word
            for word, got in zip(words, has_got, strict=True)
        ]
        return rows.inputs, {**attributes, "equation": ",".join(changed) + "->" + result}


def _matrices(a: Shape, b: Shape) -> tuple[Shape, Shape]:
    """The operands' shapes with a row or a column made of a vector."""
    return (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b


def _with_shape(onnx: Lowering, value: OnnxValue, shape: Shape) -> OnnxValue:
    if value.shape == shape:
        return value
    return OnnxValue(onnx.reshape(value.name, shape), value.type.with_shape(shape))
