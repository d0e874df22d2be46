"""The graph as it is served: the same bits wherever a record stands in a batch.

Some of a runtime's kernels give an element other bits where it lies in the tail that is left of
the vectors, or sum in an order that depends on how many rows there are.  They are written in others
here: an element-wise function over whole vectors, a sum as a product with ones.  Which operations
need it was measured, operation by operation, and is measured again by the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Graph, Node, Rewriter, Value
from sexpgpu.export.graph.types import Array, Batch, Dimension, DType, elements
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.export.operations.rules import normalize_axes, normalize_axis

#: No vector register of a CPU holds more elements, so that no tail is left of a multiple.
_VECTOR = 16

#: In f32, and so in bf16, which is computed in f32.
_RAGGED_F32 = frozenset("log log1p softplus elu sin cos tan asin acos atan".split())
_RAGGED_F64 = _RAGGED_F32 | frozenset(
    "exp expm1 tanh sigmoid silu gelu erf erfc lgamma sinh cosh asinh acosh atanh".split()
)


def make_steady(graph: Graph) -> Graph:
    """The graph with the operations whose bits depend on the batch written in others.

    Needs: a graph as it would be lowered, constants folded.  Leaves: every name, type and meaning;
    floats may differ in their last places.
    """
    writer = Writer(graph)
    for node in graph.nodes:
        if "body" in node.attributes:
            body = make_steady(node.attributes["body"])
            writer.rewriter.keep(node, {**node.attributes, "body": body})
            continue
        write = _RULES.get(node.operation.name)
        result = write(writer, node) if write is not None and _has_batch(node) else None
        if result is None:
            writer.rewriter.keep(node)
        else:
            writer.rewriter.replace(node.results[0], result)
    return writer.rewriter.finish(graph)


class Writer:
    """Adds nodes to the new graph, in place of the node `like`."""

    def __init__(self, graph: Graph) -> None:
        self.rewriter = Rewriter(graph)

    def start(self, node: Node) -> list[Value]:
        """From here on nodes stand for this one; its inputs as they are now."""
        self.like = node
        return [self.rewriter[value] for value in node.inputs]

    def add(self, name: str, *inputs: Value, **given: Any) -> Value:
        """A node with the operation's defaults where an attribute is not given."""
        operation = all_operations()[name]
        attributes = {a.name: a.default for a in operation.signature.attributes} | given
        return self.rewriter.add(operation, inputs, like=self.like, **attributes)

    def constant(self, array: Array) -> Value:
        """A constant."""
        return self.add("constant", value=array)

    def number(self, value: float, dtype: DType) -> Value:
        """A constant of rank 0."""
        return self.constant(np.asarray(value).astype(dtype.numpy))

    def reshape(self, x: Value, shape: Sequence[Dimension]) -> Value:
        """The elements under another shape."""
        return x if tuple(shape) == x.type.shape else self.add("reshape", x, shape=tuple(shape))

    def permute(self, x: Value, order: Sequence[int]) -> Value:
        """The axes in another order."""
        return x if list(order) == sorted(order) else self.add("permute", x, axes=tuple(order))

    def cast(self, x: Value, dtype: DType) -> Value:
        """In another dtype."""
        return x if x.type.dtype is dtype else self.add("cast", x, dtype=dtype)

    def sum(self, x: Value, axes: Sequence[int]) -> Value:
        """The sum over axes, which stay with length 1, as a product with ones.

        Over the last axes, of whole vectors, a runtime's own sum is the same in any batch.
        """
        left = [axis for axis in range(x.type.rank) if axis not in axes]
        count = _count(x, axes)
        if len(left) == min(axes) and count % _VECTOR == 0:
            return self.add("sum", x, axis=tuple(axes), keep=True)
        rows = self.permute(x, [*left, *axes])
        rows = self.reshape(rows, [*(x.type.shape[axis] for axis in left), count])
        ones = self.constant(np.ones((count, 1), x.type.dtype.numpy))
        kept = [1 if axis in axes else d for axis, d in enumerate(x.type.shape)]
        return self.reshape(self.add("matmul", rows, ones), kept)

    def mean(self, x: Value, axes: Sequence[int], less: int = 0) -> Value:
        """The sum divided by the number of elements, less a correction."""
        count = _count(x, axes)
        return self.add("/", self.sum(x, axes), self.number(count - less, x.type.dtype))

    def whole_vectors(self, x: Value, apply: Callable[[Value], Value]) -> Value:
        """An element-wise function of x, over records that are filled up to whole vectors."""
        if not is_ragged(x):
            return apply(x)
        shape = x.type.shape
        axis = next(axis for axis, d in enumerate(shape) if isinstance(d, Batch))
        order = [axis, *(a for a in range(len(shape)) if a != axis)]
        records = self.permute(x, order)
        count = elements(shape)
        flat = self.reshape(records, [Batch(), count])
        padded = self.add("pad", flat, after=(0, -count % _VECTOR), value=1.0)
        done = self.add("slice", apply(padded), axis=1, to=count)
        found = self.reshape(done, records.type.shape)
        return self.permute(found, [order.index(a) for a in range(len(shape))])

    def without_negative_zero(self, x: Value) -> Value:
        """x with 0 for -0: which of the two the larger one is, kernels leave to chance."""
        zero = self.number(0, x.type.dtype)
        return self.add("where", self.add("=", x, zero), zero, x)


def is_ragged(x: Value) -> bool:
    """Whether a record's elements are no whole number of vectors."""
    batches = sum(isinstance(d, Batch) for d in x.type.shape)
    return batches == 1 and elements(x.type.shape) % _VECTOR != 0


def _count(x: Value, axes: Sequence[int]) -> int:
    """How many elements the axes have, none of which is the batch."""
    return math.prod(d for a, d in enumerate(x.type.shape) if a in axes and isinstance(d, int))


def _has_batch(node: Node) -> bool:
    """Whether there are records at all, an element or more each."""
    shapes = [value.type.shape for value in (*node.inputs[:1], *node.results)]
    return all(any(isinstance(d, Batch) for d in s) and 0 not in s for s in shapes)


def _function(writer: Writer, node: Node) -> Value | None:
    """An element-wise function of one tensor."""
    [x] = writer.start(node)
    ragged = _RAGGED_F64 if x.type.dtype is DType.F64 else _RAGGED_F32
    if node.operation.name not in ragged or not is_ragged(x):
        return None
    return writer.whole_vectors(x, lambda y: writer.add(node.operation.name, y, **node.attributes))


def _larger(writer: Writer, node: Node) -> Value | None:
    """The larger or smaller of two, or the largest of windows."""
    inputs = writer.start(node)
    if not inputs[0].type.dtype.is_float or not is_ragged(node.results[0]):
        return None
    found = writer.add(node.operation.name, *inputs, **node.attributes)
    return writer.without_negative_zero(found)


def _extreme(writer: Writer, node: Node) -> Value | None:
    """The largest or smallest along axes."""
    inputs = writer.start(node)
    if not inputs[0].type.dtype.is_float:
        return None
    found = writer.add(node.operation.name, *inputs, **node.attributes)
    return writer.without_negative_zero(found)


def _reduction(
    reduce: Callable[[Writer, Node, Value, tuple[int, ...]], Value],
) -> Callable[[Writer, Node], Value | None]:
    """A reduction of floats, bf16 in f32, that keeps the axes until the end."""

    def write(writer: Writer, node: Node) -> Value | None:
        [x] = writer.start(node)
        axes = normalize_axes(node.operation.name, node.attributes["axis"], x.type.rank)
        if not x.type.dtype.is_float or not axes:
            return None
        wide = DType.F64 if x.type.dtype is DType.F64 else DType.F32
        found = reduce(writer, node, writer.cast(x, wide), axes)
        return writer.reshape(writer.cast(found, x.type.dtype), node.results[0].type.shape)

    return write


def _sum(writer: Writer, node: Node, x: Value, axes: tuple[int, ...]) -> Value:
    return writer.sum(x, axes)


def _mean(writer: Writer, node: Node, x: Value, axes: tuple[int, ...]) -> Value:
    return writer.mean(x, axes)


def _variance(writer: Writer, node: Node, x: Value, axes: tuple[int, ...]) -> Value:
    distance = writer.add("-", x, writer.mean(x, axes))
    square = writer.add("*", distance, distance)
    return writer.mean(square, axes, node.attributes["correction"])


def _logsumexp(writer: Writer, node: Node, x: Value, axes: tuple[int, ...]) -> Value:
    bound = float(np.finfo(x.type.dtype.numpy).max)
    largest = writer.add("max", x, axis=axes, keep=True)
    shift = writer.without_negative_zero(writer.add("clip", largest, low=-bound, high=bound))
    total = writer.sum(_exp(writer, writer.add("-", x, shift)), axes)
    return writer.add("+", _log(writer, total), shift)


def _exp(writer: Writer, x: Value) -> Value:
    if x.type.dtype is not DType.F64:
        return writer.add("exp", x)
    return writer.whole_vectors(x, lambda y: writer.add("exp", y))


def _log(writer: Writer, x: Value) -> Value:
    return writer.whole_vectors(x, lambda y: writer.add("log", y))


def _distribution(writer: Writer, node: Node) -> Value | None:
    """Softmax and its logarithm in f64, in steps."""
    [x] = writer.start(node)
    if x.type.dtype is not DType.F64:
        return None
    axes = (normalize_axis(node.operation.name, node.attributes["axis"], x.type.rank),)
    centered = writer.add("-", x, writer.add("max", x, axis=axes, keep=True))
    powers = _exp(writer, centered)
    total = writer.sum(powers, axes)
    if node.operation.name == "softmax":
        return writer.add("/", powers, total)
    return writer.add("-", centered, _log(writer, total))


def _standardization(writer: Writer, node: Node) -> Value | None:
    """Layer normalisation, for which runtimes have a kernel over one axis in f32; else in steps."""
    inputs = writer.start(node)
    x = inputs[0]
    start = normalize_axis(node.operation.name, node.attributes["axis"], x.type.rank)
    axes = tuple(range(start, x.type.rank))
    count = _count(x, axes)
    is_mean = node.operation.name == "rms-normalize" and count % _VECTOR
    if x.type.dtype is DType.F64 or is_mean:
        wide = DType.F64 if x.type.dtype is DType.F64 else DType.F32
        widened = [writer.cast(value, wide) for value in inputs]
        return writer.cast(_standardize(writer, node, widened, axes), x.type.dtype)
    if len(axes) == 1:
        return None
    flat = [writer.reshape(x, [*x.type.shape[:start], count])]
    flat += [writer.reshape(value, [count]) for value in inputs[1:]]
    found = writer.add(node.operation.name, *flat, **{**node.attributes, "axis": -1})
    return writer.reshape(found, x.type.shape)


def _standardize(
    writer: Writer, node: Node, inputs: Sequence[Value], axes: tuple[int, ...]
) -> Value:
    given = node.operation.named(inputs, node.attributes)
    y = given["x"]
    if node.operation.name == "layer-normalize":
        y = writer.add("-", y, writer.mean(y, axes))
    square = writer.mean(writer.add("*", y, y), axes)
    epsilon = writer.number(node.attributes["epsilon"], y.type.dtype)
    y = writer.add("/", y, writer.add("sqrt", writer.add("+", square, epsilon)))
    if "scale" in given:
        y = writer.add("*", y, given["scale"])
    return writer.add("+", y, given["bias"]) if "bias" in given else y


_RULES: dict[str, Callable[[Writer, Node], Value | None]] = {
    **dict.fromkeys(_RAGGED_F64, _function),
    **dict.fromkeys(("maximum", "minimum", "max-pool"), _larger),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("softmax", "log-softmax"), _distribution),
    **dict.fromkeys(("layer-normalize", "rms-normalize"), _standardization),
    "sum": _reduction(_sum),
    "mean": _reduction(_mean),
    "variance": _reduction(_variance),
    "logsumexp": _reduction(_logsumexp),
}
