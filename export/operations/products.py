"""Products of matrices: how their operands are rounded, and the ONNX form that suits them best.

Every operation that multiplies and adds up has the attribute `precision`.  Under `bf16` its
operands are rounded to bf16 and its sums are f32, as a training run's evaluation does.
"""

from __future__ import annotations

from typing import Any

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array, DType, TensorType, elements
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.signature import Attribute, Kind

#: f64 and integers are multiplied as they are whatever it says; bf16 operands are round already.
PRECISION = Attribute("precision", Kind.WORD, "f32", choices=("f32", "bf16"))


def is_rounded(attributes: Attributes, dtype: DType) -> bool:
    """Whether operands of the dtype are rounded to bf16 before they are multiplied."""
    return attributes["precision"] == "bf16" and dtype in (DType.F32, DType.BF16)


def factor(array: Array, attributes: Attributes) -> Array:
    """An operand as it is multiplied: bf16 as f32, and f32 rounded where `precision` says so."""
    if is_rounded(attributes, DType.of(array)):
        array = array.astype(DType.BF16.numpy)
    return array.astype(DType.F32.numpy) if DType.of(array) is DType.BF16 else array


def round_operand(onnx: Lowering, name: str) -> str:
    """The f32 tensor rounded to bf16, as f32: exact, and the same on every runtime."""
    return onnx.cast(onnx.cast(name, DType.BF16), DType.F32)


def multiply(
    onnx: Lowering, op_type: str, *operands: str, rounded: bool = False, **attributes: Any
) -> str:
    """One ONNX product, of f32 operands that are rounded to bf16 where `rounded`.

    With `native_bf16` the operator itself runs in bf16, whose result runtimes round once more.
    """
    if not rounded:
        return onnx.add(op_type, *operands, outputs=None, **attributes)
    if onnx.native_bf16:
        narrow = [onnx.cast(name, DType.BF16) for name in operands]
        return onnx.cast(onnx.add(op_type, *narrow, outputs=None, **attributes), DType.F32)
    wide = [round_operand(onnx, name) for name in operands]
    return onnx.add(op_type, *wide, outputs=None, **attributes)


def multiply_matrices(
    onnx: Lowering, a: OnnxValue, b: OnnxValue, result: TensorType, *, rounded: bool = False
) -> str:
    """`a @ b` for operands of rank 2 and above: the forms that are fast and keep their bits.

    - A matrix that is the transpose of another is read as that one is stored, by Gemm, so that a
      runtime does not hold its transpose as well.
    - A single column takes another kernel than several, whose bits depend on the number of rows:
      it is computed as two, of which one is kept.
    - Sums of no products are zeros, and runtimes differ on broadcasting an axis without elements.
    """
    if not elements(a.shape + b.shape):
        return onnx.add("Expand", onnx.scalar(0, a.dtype), onnx.shape(result.shape))
    floats = a.dtype in (DType.F32, DType.F64)
    inner = a.shape[-1]
    if b.transpose_of and floats and isinstance(inner, int):
        flat = a.type.rank == 2
        matrix = a.name if flat else onnx.add("Reshape", a.name, onnx.ints([-1, inner]))
        source = b.transpose_of.name
        product = multiply(onnx, "Gemm", matrix, source, rounded=rounded, transB=1)
        if flat:
            return product
        shaped = onnx.reshape(product, result.shape)
        if not rounded:
            onnx.by_gemm[shaped] = (a.name, b)
        return shaped
    if floats and b.type.rank > 2 and b.shape[-1] == 1 != a.shape[-2]:
        twice = onnx.add("Concat", b.name, b.name, axis=-1)
        product = multiply(onnx, "MatMul", a.name, twice, rounded=rounded)
        return onnx.add("Slice", product, onnx.ints([0]), onnx.ints([1]), onnx.ints([-1]))
    return multiply(onnx, "MatMul", a.name, b.name, rounded=rounded)
