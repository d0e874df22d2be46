"""How far rounding can move a model's outputs: its evaluation with every result a little off.

What a runtime computes differs from the reference as if every operation had been given operands,
and had given results, that are off by a few roundings (this is what it means for a sum or a
function to be computed stably; Higham, "Accuracy and Stability of Numerical Algorithms", chapter
1).  Evaluating with such errors drawn at random (Monte Carlo arithmetic, Parker 1997) shows what
becomes of them, also where a difference cancels, an operand is rounded to bf16 or two scores tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Graph, Node
from sexpgpu.export.graph.reference import Evaluation, WeightReader, evaluate_node
from sexpgpu.export.graph.types import Array, DType

#: One rounding, as a share of the number.
ROUNDING = {DType.F32: 2.0**-24, DType.F64: 2.0**-53, DType.BF16: 2.0**-9}

#: Roundings in a result: functions differ by a few units in the last place.
_IN_RESULTS = 4.0
#: Roundings in the operands of sums: of n terms they are off by some √n; steps add up likewise.
_IN_OPERANDS = 16.0
#: Roundings of f32 in what comes of a few states that fell to another bf16 between two steps.
_IN_STEPS_OF_BF16 = 2.0**12

#: Functions that runtimes compute to so many roundings of a whole of which little may be left: of
#: 1 where they saturate, of their operand where that is multiplied by such a function.
_OF_ONE = frozenset("sigmoid softplus elu lstm gru".split())
_OF_OPERAND = frozenset("silu gelu hard-swish".split())
_OF_LESSER = frozenset("tanh erf".split())

#: What no runtime's results are outside of: where a sigmoid of next to nothing fell below zero, the
#: root of it would be NaN, which explains no difference.
_RANGES = {
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "softplus": (0.0, np.inf),
} | dict.fromkeys(("tanh", "erf", "sin", "cos"), (-1.0, 1.0))

#: Operations that round nothing: the same operands give the same bits everywhere.
_EXACT = frozenset(
    "abs neg sign floor ceil round minimum maximum clip relu where cast max min any all argmax "
    "argmin sort argsort top-k max-pool constant full iota eye one-hot stop-gradient".split()
)


class Perturbation(Evaluation):
    """An evaluation whose operations round, each number at random, as runtimes may."""

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Array],
        weights: Mapping[str, Array] | WeightReader,
        batch: int | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(graph, inputs, weights, batch)
        self._generator = np.random.default_rng(seed)

    def results(self, node: Node) -> list[Array]:
        operation = node.operation
        if operation.name in _EXACT or (operation.moves_data and "body" not in node.attributes):
            return super().results(node)
        operands = [self[value] for value in node.inputs]
        if operation.family != "elementwise":
            # Moving one operand of a product is enough, and weights are the larger ones.
            operands = [
                array if value in self._names else self._moved(array, _IN_OPERANDS)
                for value, array in zip(node.inputs, operands, strict=True)
            ]
        results = evaluate_node(node, operands, self.batch)
        whole = _whole(operation.name, operands)
        moved = [self._moved(array, _roundings(node), whole) for array in results]
        if operation.name in _RANGES:
            # NaN stays.
            bounds = [np.asarray(bound, moved[0].dtype) for bound in _RANGES[operation.name]]
            moved = [np.clip(array, *bounds).astype(array.dtype) for array in moved]
        return moved

    def _moved(self, array: Array, roundings: float, whole: Array | float = 0.0) -> Array:
        """The array off by so many roundings of each number, or of the whole where that is more."""
        dtype = DType.of(array)
        if not dtype.is_float:
            return array
        wide: np.dtype[Any] = dtype.numpy if dtype is DType.F64 else np.dtype(np.float32)
        share = ROUNDING[dtype] * (1.0 if dtype is DType.BF16 else roundings)
        noise: Array = self._generator.standard_normal(array.shape, wide)
        with np.errstate(all="ignore"):
            numbers: Array = array.astype(wide)
            size = np.maximum(np.abs(numbers), np.asarray(whole, wide))
            moved = np.where(np.isfinite(numbers), numbers + size * share * noise, numbers)
            return np.asarray(moved).astype(array.dtype)


def _roundings(node: Node) -> float:
    """How many roundings there are in a node's results."""
    if node.operation.family != "recurrence":
        return _IN_RESULTS
    body = node.attributes.get("body")
    products = body.nodes if isinstance(body, Graph) else [node]
    if any(product.attributes.get("precision") == "bf16" for product in products):
        return _IN_STEPS_OF_BF16
    return _IN_OPERANDS


def _whole(name: str, operands: list[Array]) -> Array | float:
    """What the roundings of a function's results are counted in, at least."""
    if name in _OF_OPERAND:
        return np.abs(operands[0])
    if name in _OF_LESSER:
        return np.minimum(np.abs(operands[0]), 1)
    return 1.0 if name in _OF_ONE else 0.0
