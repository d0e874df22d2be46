"""A graph computed by JAX, node by node, as the reference does it with NumPy.

Called under `jax.jit` it is traced once; what comes of it is one program of XLA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp

from sexpgpu.export.graph.graph import Graph, Node, Value
from sexpgpu.export.graph.reference import resolve
from sexpgpu.export.graph.types import DType, TensorType, concrete
from sexpgpu.export.operations.operation import Operation
from sexpgpu.tools.train.lowering.rule import Application, all_rules


def compute(
    graph: Graph,
    inputs: Mapping[str, jax.Array],
    weights: Mapping[str, jax.Array],
    batch: int,
    key: jax.Array | None = None,
) -> dict[str, jax.Array]:
    """The outputs by name.

    Inputs and weights have the dtypes of the graph.  `key` starts what the graph draws: every
    operation that draws has a stream of its own; None for a graph that draws nothing.
    """
    known = given_values(graph, inputs, weights)
    for _ in compute_nodes(graph, known, batch, key):
        pass
    return {name: known[value] for name, value in graph.outputs.items()}


def given_values(
    graph: Graph, inputs: Mapping[str, jax.Array], weights: Mapping[str, jax.Array]
) -> dict[Value, jax.Array]:
    """What is known before the first node."""
    known: dict[Value, jax.Array] = {value: inputs[value.name] for value in graph.inputs}
    known.update({value: weights[path] for path, value in graph.weights.items()})
    return known


def compute_nodes(
    graph: Graph, known: dict[Value, jax.Array], batch: int, key: jax.Array | None
) -> Iterator[Node]:
    """Each node in turn, after its results came to what is known."""
    start = jax.random.key(0) if key is None else key
    for index, node in enumerate(graph.nodes):
        drawn = jax.random.fold_in(start, index) if draws(node) else start
        arrays = [known[value] for value in node.inputs]
        with jax.named_scope(node.scope or node.operation.name):
            results = compute_node(node, arrays, batch, drawn)
        known.update(zip(node.results, results, strict=True))
        yield node


def compute_node(
    node: Node, arrays: Sequence[jax.Array], batch: int, key: jax.Array
) -> list[jax.Array]:
    """A node's results, of exactly the types that inference gave them."""
    operation = node.operation
    wanted = [TensorType(t.dtype, concrete(t.shape, batch)) for t in node.result_types]
    given = [jnp.asarray(array) for array in arrays]
    narrow = any(array.dtype == jnp.bfloat16 for array in given)
    if not operation.moves_data:
        given = [_widened(array) for array in given]
    types = tuple(_wide(type, operation) for type in wanted)
    applied = Application(operation, resolve(node.attributes, batch), types, key, narrow)
    made = all_rules()[operation.name](applied, given)
    results = []
    for array, type, result in zip(made, types, wanted, strict=True):
        if array.shape != type.shape or array.dtype != type.dtype.numpy:
            raise AssertionError(
                f"{operation.name} gave {array.shape} {array.dtype}, inference says {type}"
            )
        results.append(array.astype(result.dtype.numpy))
    return results


def draws(node: Node) -> bool:
    """Whether the node draws random numbers, or a graph in it does."""
    body = node.attributes.get("body")
    return node.operation.random or (body is not None and any(draws(n) for n in body.nodes))


def _wide(type: TensorType, operation: Operation) -> TensorType:
    narrow = type.dtype is DType.BF16 and not operation.moves_data
    return type.with_dtype(DType.F32) if narrow else type


def _widened(array: jax.Array) -> jax.Array:
    return array.astype(jnp.float32) if array.dtype == jnp.bfloat16 else array
