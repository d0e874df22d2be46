"""Where a step went wrong: the first operation that made a NaN, or an infinity of finite ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sexpgpu.export.graph.graph import Graph, Node
from sexpgpu.tools.train.lowering.compute import compute_nodes, given_values


@dataclass(frozen=True, slots=True)
class Fault:
    """What is not finite, `NaN` or `an infinity`, and the operation that made it.

    Without a `node` it came in, with the field or the parameter `name`.
    """

    value: str
    node: Node | None = None
    name: str = ""


def find_fault(
    graph: Graph,
    inputs: Mapping[str, jax.Array],
    weights: Mapping[str, jax.Array],
    batch: int,
    key: jax.Array,
) -> Fault | None:
    """The first fault in the order in which the graph runs; None where all is well.

    An infinity counts where it is made of finite numbers, and only if there is no NaN: a mask may
    be made of them on purpose.
    """
    given = [(f"field `{v.name}`", inputs[v.name]) for v in graph.inputs]
    given += [(f"parameter `{path}`", weights[path]) for path in graph.weights]
    for name, array in given:
        if _has(jnp.isnan, array):
            return Fault("NaN", name=name)
    infinity: Fault | None = None
    known = given_values(graph, inputs, weights)
    for node in compute_nodes(graph, known, batch, key):
        results = [known[value] for value in node.results]
        if any(_has(jnp.isnan, array) for array in results):
            return Fault("NaN", node)
        if infinity is None and node.inputs and any(_has(jnp.isinf, array) for array in results):
            operands = [known[value] for value in node.inputs]
            if not any(_has(jnp.isinf, array) for array in operands):
                infinity = Fault("an infinity", node)
    return infinity


def _has(test: object, array: jax.Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating) and bool(test(array).any())  # type: ignore[operator]
