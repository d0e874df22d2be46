"""The conversion between dtypes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.elementwise import BF16, Elementwise, widened
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature


@operation
class Cast(Elementwise):
    """x in another dtype.

    To a float it is the nearest, ties to even; bf16 is reached through f32.  A float becomes an
    integer by cutting towards zero.  An integer becomes a smaller one by its low bits.  A number is
    true where it is not 0 (NaN is true), and true is 1.  ONNX: Cast, and Clip and Where around the
    values that have no integer, which ONNX leaves open.
    """

    name = "cast"
    signature = signature(Operand("x"), Attribute("dtype", Kind.DTYPE, keyword=False))
    constraints = (
        "A float outside the integer dtype becomes its least or greatest number, and NaN 0.",
    )
    example = ("(cast (tensor (list 1.9 -1.9 nan 1e30)) i32)", "[1 -1 0 2147483647]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        return [inputs[0].with_dtype(attributes["dtype"])]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x, dtype = widened(inputs[0]), attributes["dtype"]
        if x.dtype.kind == "f" and dtype.is_integer:
            return [_to_integer(x, dtype)]
        if dtype.numpy == BF16:
            return [x.astype(np.float32).astype(BF16)]
        return [x.astype(dtype.numpy)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        x, dtype = Term.of(onnx, inputs[0]), results[0].dtype
        if x.dtype is dtype:
            return [x.name]
        if x.dtype.is_float and dtype.is_integer:
            return [_to_integer_in_onnx(x, dtype).name]
        return [x.cast(dtype).name]


def _to_integer(x: Array, dtype: DType) -> Array:
    info = np.iinfo(dtype.numpy)
    beyond = -float(info.min)
    inside = np.where(np.abs(x) < beyond, x, 0).astype(dtype.numpy)
    return np.where(x >= beyond, info.max, np.where(x <= -beyond, info.min, inside)).astype(
        dtype.numpy
    )


def _to_integer_in_onnx(x: Term, dtype: DType) -> Term:
    info = np.iinfo(dtype.numpy)
    # The greatest integer of a dtype is no float; the least is, and so is its opposite.
    beyond = -float(info.min)
    greatest = float(np.nextafter(x.dtype.numpy.type(beyond), x.dtype.numpy.type(0)))
    number = x.apply("IsNaN", dtype=DType.BOOL).where(0, x)
    inside = number.apply("Clip", -beyond, greatest).cast(dtype)
    return (x >= beyond).where(info.max, inside)
