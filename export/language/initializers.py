"""How parameters begin: each initializer's name, signature and numbers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np

from sexpgpu.export.graph.graph import Graph, reachable
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.tensors import Parameter

#: Parameters and a line about each; `zeros` and `ones` without arguments are initializers too.
INITIALIZERS = {
    "normal": ("(deviation)", "normal numbers of mean 0"),
    "uniform": ("(low high)", "uniform numbers between two bounds"),
    "constant": ("(value)", "one number everywhere"),
    "glorot": ("()", "uniform, variance 2 / (inputs + outputs); Glorot and Bengio 2010"),
    "he": ("()", "normal, variance 2 / inputs; He et al. 2015"),
    "lecun": ("()", "normal, variance 1 / inputs; LeCun et al. 1998"),
    "orthogonal": ("()", "orthonormal rows or columns; Saxe et al. 2013"),
}

Draw = Callable[[np.random.Generator, tuple[int, ...], tuple[float, ...]], Array]


def initial_value(parameter: Parameter, seed: int) -> Array:
    """The parameter's first value; it depends on its path and the seed alone, or is a tensor."""
    if (value := parameter.init.value) is not None:
        graph = Graph(nodes=reachable([value]), outputs={"value": value})
        return np.ascontiguousarray(evaluate(graph, {}, {})["value"]).reshape(value.type.shape)
    shape = tuple(d for d in parameter.type.shape if isinstance(d, int))
    digest = hashlib.sha256(f"{seed}:{parameter.path}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "little")))
    draw = _DRAWS[parameter.init.name]
    return draw(generator, shape, parameter.init.arguments).astype(parameter.type.dtype.numpy)


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many values an output reads and an input feeds.

    [in, out] for products; [out, in, kernel…] for convolutions, as their weights lie.
    """
    if len(shape) < 2:
        return (shape[0] if shape else 1,) * 2
    if len(shape) == 2:
        return shape[0], shape[1]
    area = math.prod(shape[2:])
    return shape[1] * area, shape[0] * area


def _glorot(generator: np.random.Generator, shape: tuple[int, ...], _: tuple[float, ...]) -> Array:
    """Glorot and Bengio 2010: uniform of variance 2 / (in + out)."""
    limit = math.sqrt(6 / max(1, sum(fans(shape))))
    return generator.uniform(-limit, limit, shape)


def _scaled_normal(gain: float) -> Draw:
    def draw(generator: np.random.Generator, shape: tuple[int, ...], _: tuple[float, ...]) -> Array:
        return generator.standard_normal(shape) * math.sqrt(gain / max(1, fans(shape)[0]))

    return draw


def _orthogonal(
    generator: np.random.Generator, shape: tuple[int, ...], _: tuple[float, ...]
) -> Array:
    """Saxe et al. 2013: rows or columns are orthonormal."""
    if len(shape) < 2:
        return generator.standard_normal(shape)
    rows, columns = shape[0], math.prod(shape[1:])
    tall = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diagonal(r))
    return np.ascontiguousarray(q if rows >= columns else q.T).reshape(shape)


_DRAWS: dict[str, Draw] = {
    "zeros": lambda g, shape, a: np.zeros(shape),
    "ones": lambda g, shape, a: np.ones(shape),
    "constant": lambda g, shape, a: np.full(shape, a[0]),
    "normal": lambda g, shape, a: g.standard_normal(shape) * a[0],
    "uniform": lambda g, shape, a: g.uniform(a[0], a[1], shape),
    "glorot": _glorot,
    "he": _scaled_normal(2.0),  # He et al. 2015
    "lecun": _scaled_normal(1.0),  # LeCun et al. 1998
    "orthogonal": _orthogonal,
}
