"""Recipes and runs of programs, and a descent that follows given gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sexpgpu.export.language.recipes import Recipe
from sexpgpu.export.language.run import Run
from sexpgpu.tools.train.optimizer import make_optimizer
from support.programs import program, value_of

Arrays = dict[str, np.ndarray]


def recipe(text: str) -> Recipe:
    found = value_of(text)
    assert isinstance(found, Recipe)
    return found


def run_of(items: str) -> Run:
    """The run of a program whose `defrun` says this besides its loader."""
    head = "(def train (fields :x (list f32 8)))\n(defn model (x) x)\n"
    found = program(f"{head}(defrun :train train {items})").run
    assert found is not None
    return found


def drawn(shapes: Mapping[str, tuple[int, ...]], count: int, dtype: str = "f8") -> list[Arrays]:
    """So many sets of arrays: the first serves as parameters, those after it as gradients."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-3, 1, count))
    return [
        {name: (rng.normal(size=shape) * size).astype(dtype) for name, shape in shapes.items()}
        for size in sizes
    ]


def descended(items: str, parameters: Arrays, gradients: Sequence[Arrays]) -> Iterator[Arrays]:
    """The parameters after each step of the run's optimizer, compiled."""
    optimizer = make_optimizer(run_of(items))
    current = {name: jnp.asarray(array) for name, array in parameters.items()}
    state = optimizer.init(current)

    @jax.jit
    def step(gradient: object, state: object, current: object) -> object:
        updates, state = optimizer.update(gradient, state, current)
        return optax.apply_updates(current, updates), state

    for gradient in gradients:
        current, state = step(gradient, state, current)
        assert {n: a.dtype for n, a in current.items()} == {
            n: a.dtype for n, a in parameters.items()
        }
        yield {name: np.asarray(array) for name, array in current.items()}
