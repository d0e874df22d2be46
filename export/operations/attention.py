"""Scaled dot product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import (
    BOOLEANS,
    FLOATS,
    INTEGERS,
    Array,
    Shape,
    TensorType,
    format_shape,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.attention_form import AttentionForm
from sexpgpu.export.operations.operation import (
    WHOLE,
    Apart,
    Causal,
    Fate,
    Operation,
    Rows,
    operation,
)
from sexpgpu.export.operations.products import PRECISION, factor, is_rounded
from sexpgpu.export.operations.rules import fail_shape, fail_value, known
from sexpgpu.export.operations.signature import GIVEN, Attribute, Kind, Operand, signature
from sexpgpu.export.operations.visibility import Visibility


@operation
class Attention(Operation):
    """softmax(q · kᵀ · scale + bias) · v, over the keys that a query may see.

    q is [batch, heads, queries, width], k [batch, heads, keys, width], v [batch, heads, keys,
    value width]; rank 3 is one head without an axis of its own.  Vaswani et al. 2017; where q has
    more heads than k and v, each of theirs serves a group of q's that stand together (grouped
    queries, Ainslie et al. 2023).

    In this order: the scores are multiplied by `scale`, 1/√width unless given; with `softcap` c
    they become c · tanh(score / c) (Gemma 2); `bias` is added; keys that a query may not see are
    left out.  A query sees the keys where `mask` is true and `bias` is not -inf; under `causal`
    those up to its own place; with a `window` the last so many of these.  Query i stands at place
    keys - queries + i among the keys, so that the last query is at the last key, or where
    `positions` say; `offset` is added to either.  A query that sees nothing gives 0.  A NaN or inf
    in v spreads even from a key that is not seen, as 0 · NaN.

    bf16 is computed in f32 and rounded once.  `:precision :bf16` rounds q, k, the softmax and v to
    bf16 before they are multiplied, for f32; the sums and the softmax are f32.

    ONNX: MatMul, Mul, Where, Softmax, MatMul; in the fused profile Attention for f32 of rank 4
    without `softcap`.
    """

    name = "attention"
    family = "attention"
    signature = signature(
        Operand("q", FLOATS),
        Operand("k", FLOATS),
        Operand("v", FLOATS),
        Operand("mask", BOOLEANS, group="mask", optional=True, keyword=True),
        Operand("bias", FLOATS, optional=True, keyword=True),
        Operand("positions", INTEGERS, group="positions", optional=True, keyword=True),
        Attribute("scale", Kind.NUMBER, None),
        Attribute("causal", Kind.BOOLEAN, False),
        Attribute("window", Kind.INTEGER, None),
        Attribute("softcap", Kind.NUMBER, None),
        Attribute("offset", Kind.INTEGER, 0),
        PRECISION,
    )
    constraints = (
        "`q`, `k` and `v` are of rank 3, or all of rank 4.",
        "Their first axes are of one length.",
        "`k` and `v` have as many heads and keys as each other; `q` has a multiple of their heads.",
        "`q` and `k` have one width, at least 1.",
        "No axis but the first is the batch.",
        "`mask` and `bias` have an axis and broadcast to [batch, heads, queries, keys], without "
        "heads in rank 3.",
        "`positions` are [queries] or [batch, queries]; axes of length 1 may stand between.",
        "`window` is from 1 to 2^31 - 1, `offset` fits into 32 bits.",
        "`scale` is finite; `softcap` is finite and above 0.",
    )
    example = (
        "(attention (tensor (list (list (list 0.0)))) (tensor (list (list (list 1.0) (list 1.0)))) "
        "(tensor (list (list (list 2.0) (list 4.0)))))",
        "[[[3.0]]]",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        given: dict[str, TensorType] = self.named(inputs, attributes)
        q, k, v = given["q"], given["k"], given["v"]
        _check_tensors(q, k, v)
        scores = _scores_shape(q.shape, k.shape)
        for name in ("mask", "bias"):
            if name in given and not _fits(given[name].shape, scores):
                fail_shape(
                    f"`{name}` of `attention` does not broadcast to the scores",
                    came=format_shape(given[name].shape),
                    expected=format_shape(scores),
                )
        if "positions" in given:
            _check_positions(given["positions"].shape, scores)
        _check_attributes(attributes)
        return [q.with_shape((*q.shape[:-1], v.shape[-1]))]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        given: dict[str, Array] = self.named(inputs, attributes)
        q, k, v = (factor(given[name], attributes) for name in ("q", "k", "v"))
        if (group := group_of(q.shape, k.shape) or 1) > 1:
            k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = (q @ k.swapaxes(-1, -2)) * q.dtype.type(scale_of(attributes, q.shape))
        if attributes["softcap"] is not None:
            cap = q.dtype.type(attributes["softcap"])
            scores = cap * np.tanh(scores / cap)
        seen = np.ones_like(scores, bool)
        if "bias" in given:
            bias = factor(given["bias"], {"precision": "f32"})
            scores, seen = scores + bias, seen & (bias != -np.inf)
        if "mask" in given:
            seen = seen & given["mask"]
        positions = given.get("positions")
        if positions is not None and positions.ndim > 1:
            positions = positions.reshape(len(q), *[1] * (q.ndim - 3), q.shape[-2])
        limit = visibility_of(q.shape, k.shape, attributes).seen(positions)
        if limit is not None:
            seen = seen & limit
        scores = np.where(seen, scores, -np.inf)
        exponents = np.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-np.inf))
        softmax = exponents / np.sum(exponents, axis=-1, keepdims=True)
        weights = np.where(np.any(seen, axis=-1, keepdims=True), softmax, 0)
        return [(factor(weights, attributes) @ v).astype(inputs[0].dtype)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        given: dict[str, OnnxValue] = self.named(inputs, attributes)
        q, k, v = given["q"], given["k"], given["v"]
        form = AttentionForm(
            onnx,
            scores=_scores_shape(q.shape, k.shape),
            result=results[0],
            group=group_of(q.shape, k.shape) or 1,
            visibility=visibility_of(q.shape, k.shape, attributes),
            scale=scale_of(attributes, q.shape),
            softcap=attributes["softcap"],
            rounded=is_rounded(attributes, q.dtype),
        )
        return [form.write(q, k, v, given.get("mask"), given.get("bias"), given.get("positions"))]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        name = self.operand_names(attributes, len(inputs))[operand]
        type, rank = inputs[operand], inputs[0].rank
        q, k, *_ = inputs
        in_order = visibility_of(q.shape, k.shape, attributes).is_causal
        placed = "positions" in attributes.get(GIVEN, ())
        along_keys = Causal(rank - 2) if in_order and not placed else WHOLE
        return [_fate(name, type, axis, q, k, along_keys)]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        """For some queries it needs to be told where they stand."""
        rank = rows.result.rank
        names = self.operand_names(attributes, len(rows.inputs))
        reduced = dict(zip(names, rows.input_axes, strict=True))
        if rank == 4 and rows.axis == 1 and reduced["k"] is None:
            # Only where all heads of q share one of k does it not matter which they are.
            return (rows.inputs, attributes) if rows.inputs[1].type.shape[1] == 1 else None
        limited = attributes["causal"] or attributes["window"] is not None
        if rows.axis != rank - 2 or not limited:
            return rows.inputs, attributes
        if "positions" in names:
            return None if reduced["positions"] is None else (rows.inputs, attributes)
        queries, keys = rows.result.shape[rank - 2], rows.inputs[1].type.shape[rank - 2]
        assert isinstance(queries, int)
        assert isinstance(keys, int)
        changed = {
            **attributes,
            "offset": attributes["offset"] + keys - queries,
            GIVEN: (*attributes.get(GIVEN, ()), "positions"),
        }
        return (*rows.inputs, rows.positions), changed


def _fate(
    name: str,
    type: TensorType,
    axis: int,
    q: TensorType,
    k: TensorType,
    along_keys: Fate,
) -> Fate:
    rank = q.rank
    if name == "positions":
        if axis == type.rank - 1:
            return Apart(rank - 2)
        return Apart(0) if axis == 0 else WHOLE
    if name in ("mask", "bias"):
        target = axis + rank - type.rank
        if type.shape[axis] != _scores_shape(q.shape, k.shape)[target]:
            return WHOLE
        return along_keys if target == rank - 1 else Apart(target)
    if axis == 0:
        return Apart(0)
    if rank == 4 and axis == 1:
        return Apart(1) if type.shape[1] == q.shape[1] else WHOLE
    if axis == rank - 2:
        return Apart(axis) if name == "q" else along_keys
    return Apart(axis) if name == "v" else WHOLE


def _scores_shape(q: Shape, k: Shape) -> Shape:
    return (*q[:-1], k[-2])


def group_of(q: Shape, k: Shape) -> int | None:
    """How many heads of q share a head of k; None where they cannot be shared out."""
    if len(q) == 3 or q[1] == k[1]:
        return 1
    heads, shared = (known("attention", "the number of heads", shape[1]) for shape in (q, k))
    return None if shared == 0 or heads % shared else heads // shared


def visibility_of(q: Shape, k: Shape, attributes: Attributes) -> Visibility:
    return Visibility(
        queries=known("attention", "the number of queries", q[-2]),
        keys=known("attention", "the number of keys", k[-2]),
        causal=attributes["causal"],
        window=attributes["window"],
        offset=attributes["offset"],
    )


def scale_of(attributes: Attributes, q: Shape) -> float:
    if attributes["scale"] is not None:
        return float(attributes["scale"])
    return 1 / math.sqrt(known("attention", "the width", q[-1]))


def _check_tensors(q: TensorType, k: TensorType, v: TensorType) -> None:
    came = f"q {format_shape(q.shape)}, k {format_shape(k.shape)}, v {format_shape(v.shape)}"
    if q.rank not in (3, 4) or k.rank != q.rank or v.rank != q.rank:
        fail_shape(
            "`attention` takes q, k and v of rank 4, or of rank 3 for one head",
            came=came,
            expected="[batch, heads, time, width] or [batch, time, width]",
            help="`reshape` makes one axis of the heads and others: windows count as more heads",
        )
    if len({type.shape[0] for type in (q, k, v)}) > 1:
        fail_shape(
            "q, k and v of `attention` differ in their first axis",
            came=came,
            help="queries that all records share are repeated by `broadcast-to`",
        )
    for dimension in q.shape[1:] + k.shape[1:] + v.shape[1:]:
        known("attention", "all axes but the first", dimension)
    if k.shape[:-1] != v.shape[:-1]:
        fail_shape("k and v of `attention` differ in their heads or keys", came=came)
    if group_of(q.shape, k.shape) is None:
        fail_shape(
            "the heads of q are not a multiple of those of k and v",
            came=came,
            help="in grouped query attention each head of k and v serves as many heads of q",
        )
    if q.shape[-1] != k.shape[-1] or q.shape[-1] == 0:
        fail_shape("q and k of `attention` have no width in common", came=came)


def _fits(shape: Shape, scores: Shape) -> bool:
    """Whether the shape broadcasts to the scores without making them larger."""
    pairs = zip(reversed(shape), reversed(scores), strict=False)
    return 0 < len(shape) <= len(scores) and all(a in (1, b) for a, b in pairs)


def _check_positions(shape: Shape, scores: Shape) -> None:
    between = set(shape[1:-1])
    first = shape[0] if len(shape) > 1 else scores[0]
    if not shape or shape[-1] != scores[-2] or first != scores[0] or between - {1}:
        fail_shape(
            "`positions` of `attention` are not one for each query",
            came=format_shape(shape),
            expected=f"{format_shape(scores[-2:-1])} or {format_shape((scores[0], scores[-2]))}",
        )


def _check_attributes(attributes: Attributes) -> None:
    window, scale, cap = (attributes[name] for name in ("window", "scale", "softcap"))
    if isinstance(window, int) and not 1 <= window < 2**31:
        fail_value(
            "`window` of `attention` is out of range",
            came=str(window),
            expected="1 to 2^31 - 1",
        )
    if abs(attributes["offset"]) >= 2**31:
        fail_value(
            "`offset` of `attention` is out of range",
            came=str(attributes["offset"]),
            expected="a number of 32 bits",
        )
    if isinstance(scale, float) and not math.isfinite(scale):
        fail_value("`scale` of `attention` is not finite", came=str(scale))
    if isinstance(cap, float) and not 0 < cap < math.inf:
        fail_value("`softcap` of `attention` is out of range", came=str(cap), expected="above 0")
