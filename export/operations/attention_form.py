"""The ONNX form of attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.types import Dimension, DType, Shape, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.products import multiply_matrices
from sexpgpu.export.operations.visibility import Visibility


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """Writes one attention: from primitives, or by ONNX's own operator where it means the same."""

    onnx: Lowering
    scores: Shape
    result: TensorType
    group: int
    visibility: Visibility
    scale: float
    softcap: float | None
    rounded: bool

    def write(
        self,
        q: OnnxValue,
        k: OnnxValue,
        v: OnnxValue,
        mask: OnnxValue | None,
        bias: OnnxValue | None,
        positions: OnnxValue | None,
    ) -> str:
        """The name of the result."""
        if 0 in (*q.shape, *k.shape, *v.shape):
            shape = self.onnx.shape(self.result.shape)
            return self.onnx.add("Expand", self.onnx.scalar(0, q.dtype), shape)
        if self.can_be_fused:
            if mask is bias is positions is None and self.visibility.is_triangle:
                return self.fused(q, k, v, "", is_causal=1)
            seen = self.seen(mask, None, positions)
            return self.fused(q, k, v, self.fused_mask(seen, bias))
        seen = self.seen(mask, bias, positions)
        weights = self.softmax(self.masked(self.products(q, k), seen, bias))
        rows = self.rows(k, self.scores[-1])
        result = multiply_matrices(
            self.onnx,
            self.shaped(weights, rows),
            v,
            self.result.with_shape((*rows[:-1], v.shape[-1])),
            rounded=self.rounded,
        )
        if rows[:-1] != self.result.shape[:-1]:
            result = self.onnx.reshape(result, self.result.shape)
        given = not (mask is bias is positions is None)
        if seen is None or not (given or self.visibility.may_be_blind()):
            return result
        return self.onnx.add("Where", self.any(seen), result, self.scalar(0))

    @property
    def can_be_fused(self) -> bool:
        """Whether ONNX's operator means the same, and ONNX Runtime runs it."""
        plain = self.softcap is None and not self.rounded and np.float32(self.scale) > 0
        fits = self.result.dtype is DType.F32 and len(self.scores) == 4
        return self.onnx.fused and fits and bool(plain)

    def products(self, q: OnnxValue, k: OnnxValue) -> OnnxValue:
        """The scaled scores; heads of q that share a head of k are rows of one product."""
        rows = self.rows(k, q.shape[-1])
        grouped = self.shaped(q, rows)
        swapped = [*range(len(rows) - 2), len(rows) - 1, len(rows) - 2]
        turned = OnnxValue(
            self.onnx.add("Transpose", k.name, perm=swapped),
            k.type.with_shape([k.shape[axis] for axis in swapped]),
        )
        shape = (*rows[:-1], self.scores[-1])
        type = self.result.with_shape(shape)
        product = multiply_matrices(self.onnx, grouped, turned, type, rounded=self.rounded)
        scale = self.scalar(self.scale)
        if self.result.dtype is DType.F64:
            # ONNX Runtime makes the product's attribute of a scalar, and that is f32.  (A single
            # key has the weight 1 under any scale.)
            scale = self.onnx.constant(np.full(self.visibility.keys, self.scale))
        scaled = self.onnx.add("Mul", product, scale)
        return self.shaped(OnnxValue(scaled, type), self.scores)

    def masked(self, scores: OnnxValue, seen: str | None, bias: OnnxValue | None) -> str:
        """The scores under the cap and the bias, -inf for keys that are not seen."""
        name = scores.name
        if self.softcap is not None:
            cap = self.scalar(self.softcap)
            bent = self.onnx.add("Tanh", self.onnx.add("Div", name, cap))
            name = self.onnx.add("Mul", bent, cap)
        if bias is not None:
            name = self.onnx.add("Add", name, bias.name)
        if seen is None:
            return name
        return self.onnx.add("Where", seen, name, self.scalar(-np.inf))

    def softmax(self, scores: str) -> OnnxValue:
        name = self.onnx.add("Softmax", scores, axis=-1)
        return OnnxValue(name, self.result.with_shape(self.scores))

    def seen(
        self, mask: OnnxValue | None, bias: OnnxValue | None, positions: OnnxValue | None
    ) -> str | None:
        """Which keys each query sees, of a shape that broadcasts to the scores; None: all."""
        places = None
        if positions is not None:
            several = positions.type.rank > 1
            lead = (self.scores[0], *[1] * (len(self.scores) - 3)) if several else ()
            places = self.onnx.reshape(positions.name, (*lead, self.scores[-2], 1))
        parts = [self.visibility.write(self.onnx, places)]
        if mask is not None:
            parts.append(mask.name)
        if bias is not None:
            parts.append(
                self.onnx.add("Not", self.onnx.add("Equal", bias.name, self.scalar(-np.inf)))
            )
        seen = None
        for part in parts:
            seen = self.onnx.add("And", seen, part) if seen and part else seen or part
        return seen

    def any(self, seen: str) -> str:
        """Whether a query sees a key at all."""
        numbers = self.onnx.cast(seen, DType.I32)
        most = self.onnx.add("ReduceMax", numbers, self.onnx.ints([-1]), keepdims=1)
        return self.onnx.cast(most, DType.BOOL)

    def fused(
        self, q: OnnxValue, k: OnnxValue, v: OnnxValue, mask: str, *, is_causal: int | None = None
    ) -> str:
        names = (q.name, k.name, v.name, mask)
        return self.onnx.add("Attention", *names, scale=self.scale, is_causal=is_causal)

    def fused_mask(self, seen: str | None, bias: OnnxValue | None) -> str:
        """A mask whose last two axes are queries and keys, as ONNX Runtime needs it."""
        if seen is None and bias is None:
            return ""
        mask = seen or ""
        if bias is not None:
            mask = bias.name
            if seen is not None:
                mask = self.onnx.add("Where", seen, bias.name, self.scalar(-np.inf))
        return self.onnx.add("Expand", mask, self.onnx.shape((1, 1, *self.scores[-2:])))

    def rows(self, k: OnnxValue, last: Dimension) -> Shape:
        """[batch, heads of k, rows, last]: all rows of q's heads that share a head of k."""
        if self.group == 1:
            return (*self.scores[:-1], last)
        return (self.scores[0], k.shape[1], self.group * self.visibility.queries, last)

    def shaped(self, value: OnnxValue, shape: Shape) -> OnnxValue:
        if value.shape == shape:
            return value
        return OnnxValue(self.onnx.reshape(value.name, shape), value.type.with_shape(shape))

    def scalar(self, value: float) -> str:
        return self.onnx.scalar(value, self.result.dtype)
