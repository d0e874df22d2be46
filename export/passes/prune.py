"""Leaves out what the wanted outputs do not need: nodes, weights and inputs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sexpgpu.export.graph.graph import Graph, reachable
from sexpgpu.schemas.errors import SexpgpuError


def remove_dead(graph: Graph, *, keep_inputs: bool = True) -> Graph:
    """The graph without nodes and weights that no output depends on.

    Needs: a graph.  Leaves: the same outputs; the inputs too, unless `keep_inputs` is false and
    nothing reads them.
    """
    nodes = reachable(graph.outputs.values())
    read = {value for node in nodes for value in node.inputs} | set(graph.outputs.values())
    # A pass may have put old nodes behind new ones, so that serials alone do not give the order.
    order = {node: index for index, node in enumerate(graph.nodes)}
    return Graph(
        inputs=[value for value in graph.inputs if keep_inputs or value in read],
        weights={path: value for path, value in graph.weights.items() if value in read},
        nodes=sorted(nodes, key=order.__getitem__),
        outputs=dict(graph.outputs),
    )


def select_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph that computes only the named outputs, in the model's order.

    Inputs that only the others read are left out as well.  Raises E-EXPORT-002 for a name that the
    model does not have.
    """
    for name in names:
        if name not in graph.outputs:
            close = difflib.get_close_matches(name, graph.outputs, 1)
            raise SexpgpuError(
                "E-EXPORT-002",
                f"the model has no output `{name}`",
                expected="one of " + ", ".join(graph.outputs),
                help=f"did you mean `{close[0]}`?" if close else None,
            )
    wanted = {name: value for name, value in graph.outputs.items() if name in names}
    pruned = Graph(graph.inputs, graph.weights, graph.nodes, wanted)
    return remove_dead(pruned, keep_inputs=False)
