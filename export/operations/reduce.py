"""Reductions by one operation: sum, product, extremes, any and all."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import BOOLEANS, FLOATS, NUMBERS, Array, Batch, DType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.reduction import Reduction, reduced_size, reduction, with_nan
from sexpgpu.schemas.errors import SexpgpuError

#: Reductions of whole numbers in ONNX Runtime go through f64, so that i64 is summed in halves.
_HALF = 2**32


@operation
class Sum(Reduction):
    """The sum; 0 of no elements. Integers wrap around.

    ONNX: ReduceSum; on i32 in i64, on i64 in two halves, which stay exact where a runtime sums in
    f64.
    """

    name = "sum"
    signature = reduction(NUMBERS)
    constraints = ("The axes are different axes of `x`.",)
    example = ("(sum (tensor (list (list 1 2) (list 3 4))) :axis 0)", "[4 6]")

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        return np.asarray(np.sum(x, axis=axes, dtype=x.dtype, keepdims=True))

    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        def total(name: str) -> str:
            return onnx.add("ReduceSum", name, onnx.ints(axes), keepdims=keep)

        if x.dtype is DType.I32:
            return onnx.cast(total(onnx.cast(x.name, DType.I64)), DType.I32)
        if x.dtype is DType.I64:
            half = onnx.scalar(_HALF, DType.I64)
            upper = onnx.add("Div", x.name, half)
            lower = onnx.add("Sub", x.name, onnx.add("Mul", upper, half))
            return onnx.add("Add", onnx.add("Mul", total(upper), half), total(lower))
        return total(x.name)


@operation
class Mean(Reduction):
    """The sum divided by the number of elements.

    ONNX: ReduceMean.
    """

    name = "mean"
    signature = reduction(FLOATS)
    constraints = ("The axes are different axes of `x`.", "There is an element to reduce.")
    example = ("(mean (tensor (list (list 1.0 2.0) (list 3.0 4.0))) :axis -1)", "[1.5 3.5]")
    of_nothing = False

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        return np.asarray(np.mean(x, axis=axes, keepdims=True))

    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        return onnx.add("ReduceMean", x.name, onnx.ints(axes), keepdims=keep)


@operation
class Prod(Reduction):
    """The product; 1 of no elements. Integers wrap around.

    ONNX: ReduceProd; on integers a tree of Mul, since runtimes do not agree on overflow. A product
    of integers over the batch has no ONNX form (E-ONNX-001).
    """

    name = "prod"
    signature = reduction(NUMBERS)
    constraints = ("The axes are different axes of `x`.",)
    example = ("(prod (tensor (list 2 3 4)))", "24")

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        return np.asarray(np.prod(x, axis=axes, dtype=x.dtype, keepdims=True))

    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        if x.dtype.is_float:
            return onnx.add("ReduceProd", x.name, onnx.ints(axes), keepdims=keep)
        return self._tree(onnx, x, axes, keep)

    def _tree(self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int) -> str:
        left = [axis for axis in range(x.type.rank) if axis not in axes]
        shape = [x.shape[axis] for axis in left]
        count = reduced_size(x.type, axes)
        if isinstance(count, Batch):
            raise SexpgpuError(
                "E-ONNX-001",
                "a product of whole numbers over the batch has no ONNX form",
                help="multiply in f64: `(prod (cast x f64))`",
            )
        name = onnx.add("Transpose", x.name, perm=[*left, *axes])
        name = onnx.reshape(name, [*shape, count])
        while count > 1:
            half = count // 2
            first, second = (self._span(onnx, name, a, a + half) for a in (0, half))
            product = onnx.add("Mul", first, second)
            if count % 2:
                rest = self._span(onnx, name, 2 * half, count)
                product = onnx.add("Concat", product, rest, axis=-1)
            name, count = product, half + count % 2
        final = [1 if a in axes else d for a, d in enumerate(x.shape)] if keep else shape
        if count == 0:
            return onnx.add("Expand", onnx.scalar(1, x.dtype), onnx.shape(final))
        return onnx.reshape(name, final)

    def _span(self, onnx: Lowering, name: str, start: int, stop: int) -> str:
        bounds = ([start], [stop], [-1])
        return onnx.add("Slice", name, *map(onnx.ints, bounds))


class Extreme(Reduction):
    """The largest or smallest element; NaN where there is one."""

    signature = reduction(NUMBERS)
    constraints = ("The axes are different axes of `x`.", "There is an element to reduce.")
    of_nothing = False
    operator: ClassVar[str]

    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        found = onnx.add(self.operator, x.name, onnx.ints(axes), keepdims=keep)
        return with_nan(onnx, found, x, axes, keep) if x.dtype.is_float else found


@operation
class Max(Extreme):
    """The largest element; NaN where there is one, as in `numpy.max`.

    ONNX: ReduceMax, and for floats a second one that looks for NaN.
    """

    name = "max"
    example = ("(max (tensor (list (list 1 4) (list 3 2))) :axis 1)", "[4 3]")
    operator = "ReduceMax"

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        return np.asarray(np.max(x, axis=axes, keepdims=True))


@operation
class Min(Extreme):
    """The smallest element; NaN where there is one, as in `numpy.min`.

    ONNX: ReduceMin, and for floats a ReduceMax that looks for NaN.
    """

    name = "min"
    example = ("(min (tensor (list (list 1 4) (list 3 2))) :axis 1)", "[1 2]")
    operator = "ReduceMin"

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        return np.asarray(np.min(x, axis=axes, keepdims=True))


@operation
class AnyTrue(Reduction):
    """Whether an element is true; false of no elements.

    ONNX: ReduceSum of the elements as f32, which is 0 for none.
    """

    name = "any"
    signature = reduction(BOOLEANS)
    constraints = ("The axes are different axes of `x`.",)
    example = ("(any (tensor (list (list true false) (list false false))) :axis 1)", "[true false]")

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        return np.asarray(np.any(x, axis=axes, keepdims=True))

    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        return _any_true(onnx, x.name, axes, keep)


@operation
class AllTrue(Reduction):
    """Whether every element is true; true of no elements.

    ONNX: Not of whether any is not.
    """

    name = "all"
    signature = reduction(BOOLEANS)
    constraints = ("The axes are different axes of `x`.",)
    example = ("(all (tensor (list (list true false) (list true true))) :axis 1)", "[false true]")

    def compute(self, x: Array, axes: tuple[int, ...], attributes: Attributes) -> Array:
        return np.asarray(np.all(x, axis=axes, keepdims=True))

    def reduce(
        self, onnx: Lowering, x: OnnxValue, axes: tuple[int, ...], keep: int, attributes: Attributes
    ) -> str:
        return onnx.add("Not", _any_true(onnx, onnx.add("Not", x.name), axes, keep))


def _any_true(onnx: Lowering, name: str, axes: tuple[int, ...], keep: int) -> str:
    """Whether an element of a boolean tensor is true."""
    count = onnx.add("ReduceSum", onnx.cast(name, DType.F32), onnx.ints(axes), keepdims=keep)
    return onnx.cast(count, DType.BOOL)
