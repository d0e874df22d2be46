"""scan: a graph that runs along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.export.graph.graph import Graph
from sexpgpu.tools.train.lowering.compute import compute, draws
from sexpgpu.tools.train.lowering.rule import Application, rule


@rule("scan")
def scan(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """What a step draws, it draws from a key of its own."""
    body: Graph = at.attributes["body"]
    count, axis = at.attributes["carries"], at.attributes["axis"]
    end = count + at.attributes["sequences"]
    sequences = [jnp.moveaxis(array, axis, 0) for array in inputs[count:end]]
    captured = list(inputs[end:])
    names = [value.name for value in body.inputs]
    is_drawn = any(draws(node) for node in body.nodes)

    def step(
        carries: list[jax.Array], given: tuple[jax.Array, list[jax.Array]]
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        place, slices = given
        key = jax.random.fold_in(at.key, place) if is_drawn else None
        feeds = dict(zip(names, [*carries, *slices, *captured], strict=True))
        outputs = list(compute(body, feeds, {}, at.attributes["batch"], key).values())
        return outputs[:count], outputs[count:]

    places = jnp.arange(sequences[0].shape[0], dtype=jnp.uint32)
    finals, stacked = lax.scan(
        step, list(inputs[:count]), (places, sequences), reverse=at.attributes["reverse"]
    )
    return [*finals, *(jnp.moveaxis(array, 0, axis) for array in stacked)]
