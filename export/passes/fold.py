"""Constant folding: what depends on no input and no weight is computed now, if that is small."""

from __future__ import annotations

import math

from sexpgpu.export.graph.graph import Graph, Node, Rewriter, Value
from sexpgpu.export.graph.reference import evaluate_node
from sexpgpu.export.graph.types import Array, Batch
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.export.passes.prune import remove_dead
from sexpgpu.schemas.errors import SexpgpuError

#: Bytes of results that are computed whatever they replace.  Runtimes would compute them when they
#: load the file, and are not always right: OpenVINO leaves out the Abs of a row that is constant.
_SMALL = 2**14


def fold_constants(graph: Graph) -> Graph:
    """The same graph with nodes over constants replaced by their values.

    Needs: any graph.  Leaves: the same outputs, to the bit of the reference.  A node is folded
    where its result is small, or takes no more bytes than the constants that go with it.
    """
    constant = all_operations()["constant"]
    rewriter = Rewriter(graph)
    arrays: dict[Value, Array] = {}
    shared = {value for value, nodes in graph.consumers().items() if len(nodes) > 1}
    # An output needs a node that makes it.
    outputs = set(graph.outputs.values())
    for node in graph.nodes:
        if node.operation is constant:
            arrays[node.results[0]] = node.attributes["value"]
            rewriter.keep(node)
            continue
        goes = sum(arrays[value].nbytes for value in {*node.inputs} & {*arrays} - shared - outputs)
        sizes = [_bytes(value) for value in node.results]
        if (
            any(value not in arrays for value in node.inputs)
            or not outputs.isdisjoint(node.results)
            or node.operation.random
            or any(size is None for size in sizes)
            or sum(size or 0 for size in sizes) > max(_SMALL, goes)
        ):
            rewriter.keep(node)
            continue
        for value, array in zip(node.results, _evaluate(node, arrays), strict=True):
            arrays[value] = array
            rewriter.replace(value, rewriter.add(constant, [], like=node, value=array))
    return remove_dead(rewriter.finish(graph))


def _evaluate(node: Node, arrays: dict[Value, Array]) -> list[Array]:
    """The node's values; an error says where in the source it stands."""
    try:
        return evaluate_node(node, [arrays[value] for value in node.inputs], 1)
    except SexpgpuError as error:
        error.place = error.place or str(node.position or "")
        raise


def _bytes(value: Value) -> int | None:
    """The size of a value; None where it depends on the batch."""
    if any(isinstance(dimension, Batch) for dimension in value.type.shape):
        return None
    return math.prod(d for d in value.type.shape if isinstance(d, int)) * value.type.dtype.itemsize
