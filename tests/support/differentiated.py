"""One operation in JAX: its results, and what its gradients are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from sexpgpu.export.graph.graph import Node
from sexpgpu.export.graph.reference import evaluate_node
from sexpgpu.export.graph.types import Array
from sexpgpu.tools.train.lowering.compute import compute_node
from support.harness import single

KEY = jax.random.key(0)


def apply(
    name: str, inputs: Sequence[Any], key: jax.Array = KEY, **attributes: Any
) -> list[jax.Array]:
    """The operation's results; the operands may be traced."""
    return compute_node(node_of(name, inputs, **attributes), list(inputs), 1, key)


def node_of(name: str, inputs: Sequence[Any], **attributes: Any) -> Node:
    """The operation applied to operands of these types."""
    return single(name, [np.zeros(x.shape, x.dtype) for x in inputs], **attributes)[1]


def reference(name: str, inputs: Sequence[Array], **attributes: Any) -> list[Array]:
    """What the operation means."""
    return evaluate_node(node_of(name, inputs, **attributes), list(inputs), 1)


def gradients(
    name: str, inputs: Sequence[Array], cotangents: Sequence[Array] | None = None, **attributes: Any
) -> list[Array]:
    """The gradients of every float operand, for the results' cotangents: ones unless given."""
    floats = [i for i, x in enumerate(inputs) if np.issubdtype(x.dtype, np.floating)]

    @jax.jit
    def pull(given: list[jax.Array], cotangents: list[jax.Array] | None) -> Any:
        def results(given: list[jax.Array]) -> list[jax.Array]:
            operands: list[Any] = list(inputs)
            for place, x in zip(floats, given, strict=True):
                operands[place] = x
            return apply(name, operands, **attributes)

        made, back = jax.vjp(results, given)
        return back([jax.numpy.ones_like(y) for y in made] if cotangents is None else cotangents)[0]

    given = [jax.numpy.asarray(inputs[i]) for i in floats]
    wanted = None if cotangents is None else [jax.numpy.asarray(c) for c in cotangents]
    return [np.asarray(gradient) for gradient in pull(given, wanted)]


def rounded(array: Array) -> Array:
    """To bf16, as f64, in which products and sums of a few are all but exact."""
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)
