"""Products in bf16: their operands are rounded to bf16 and their sums are f32."""

from __future__ import annotations

from sexpgpu.export.graph.graph import Attributes, Graph, Node, Rewriter
from sexpgpu.export.graph.types import DType
from sexpgpu.schemas.precision import Precision


def set_precision(graph: Graph, precision: Precision) -> Graph:
    """The graph whose f32 products run in `precision`, in the bodies of scans too.

    Needs: a graph as the language traces it, its products in f32.  Leaves: norms, softmax and all
    else as they are, and every output's dtype.
    """
    if precision == "f32":
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewriter.keep(node, _attributes(node, precision))
    return rewriter.finish(graph)


def _attributes(node: Node, precision: Precision) -> Attributes | None:
    """The node's new attributes; None where it stays as it is."""
    if "body" in node.attributes:
        body = set_precision(node.attributes["body"], precision)
        return {**node.attributes, "body": body}
    if "precision" not in node.attributes or node.results[0].type.dtype is not DType.F32:
        return None
    return {**node.attributes, "precision": precision}
