"""Every operation in JAX gives what its NumPy meaning gives, and so do its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.export.graph.graph import Node
from sexpgpu.export.graph.reference import evaluate_node
from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.tools.train.lowering.compute import compute_node
from sexpgpu.tools.train.lowering.rule import all_rules
from support.harness import assert_close
from support.samples import RECORDS, Sample, cases, samples_of

CASES = [(name, dtype) for name, dtype in cases() if not all_operations()[name].random]
#: Sums of products of numbers up to 2: where they cancel, the error is of the size of what is
#: added, not of the sum.
_SUMS = {"linear", "attention", "neural", "recurrence", "reduce", "normalization"}
#: Of finite differences in f64; a function is smooth at a point where both give the same.
_STEPS = (1e-6, 3e-7)
#: Points of a sample that are tried until the function is smooth at one.
_POINTS = 8


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What was compiled for a test is of no use to another, and takes gigabytes for them all."""
    yield
    jax.clear_caches()


def test_every_operation_has_a_rule() -> None:
    assert all_rules().keys() == all_operations().keys()


def in_jax(calls: Sequence[tuple[Node, list[Array], int]]) -> list[list[Array]]:
    """The results of each node for so many records, all compiled together: that is the quickest."""

    def compute(given: list[list[Any]]) -> list[list[Any]]:
        key = jax.random.key(0)
        return [
            compute_node(node, arrays, records, key)
            for (node, _, records), arrays in zip(calls, given, strict=True)
        ]

    found = jax.jit(compute)([arrays for _, arrays, _ in calls])
    return [[np.asarray(result) for result in results] for results in found]


def _absolute(sample: Sample, dtype: DType) -> float | None:
    if dtype is not DType.F32 or sample.operation.family not in _SUMS:
        return None
    return 2e-2 if sample.attributes.get("precision") == "bf16" else 2e-5


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_values_are_those_of_the_reference(name: str, dtype: DType) -> None:
    samples = [(s, records) for s in samples_of(name, dtype) for records in (RECORDS, 1)]
    calls = [(s.node(dtype), s.arrays(dtype, records), records) for s, records in samples]
    for (sample, _), call, results in zip(samples, calls, in_jax(calls), strict=True):
        for found, expected in zip(results, evaluate_node(*call), strict=True):
            try:
                assert_close(found, expected, absolute=_absolute(sample, dtype))
            except AssertionError as error:
                raise AssertionError(f"{sample} in {dtype}: {error}") from None


def _differentiable(name: str) -> list[Sample]:
    """The samples that have a float to be moved and a float that may move with it."""
    return [
        sample
        for sample in samples_of(name, DType.F64)
        if any(array.dtype == np.float64 and array.size for array in sample.arrays(DType.F64))
        and any(type.dtype is DType.F64 for type in sample.node(DType.F64).result_types)
    ]


#: `stop-gradient` has another gradient than its meaning has: that is what it is for.
DIFFERENTIABLE = [name for name in dict(CASES) if name != "stop-gradient" and _differentiable(name)]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    """In f64, along a random direction, at a point where the reference is smooth."""
    generator = np.random.default_rng(0)
    tried: list[tuple[Sample, Node, Point, Slope]] = []
    for sample in _differentiable(name):
        node = sample.node(DType.F64)
        points = (_point(generator, sample, index) for index in range(_POINTS))
        slopes = ((point, _slope(point, node)) for point in points)
        found = next(((point, slope) for point, slope in slopes if slope is not None), None)
        assert found is not None, f"{sample} is smooth at none of the points"
        tried.append((sample, node, *found))
    along = _along([(node, point) for _, node, point, _ in tried])
    for (sample, _, _, slope), grown in zip(tried, along, strict=True):
        assert grown == pytest.approx(slope.value, rel=1e-5, abs=slope.error), f"{sample}"


@dataclass(frozen=True, slots=True)
class Point:
    """Operands, which way each float among them is moved, and what each float of the results is
    multiplied by before all are added up; by the numbers of operands and results."""

    arrays: list[Array]
    direction: dict[int, Array]
    weights: dict[int, Array]

    def moved(self, step: float) -> list[Array]:
        return [
            array + step * self.direction[i] if i in self.direction else array
            for i, array in enumerate(self.arrays)
        ]

    def terms(self, results: Sequence[Any]) -> list[Any]:
        """Results that are not finite at the point have no part in it."""
        return [jnp.where(w != 0, results[i], 0) * w for i, w in self.weights.items()]


@dataclass(frozen=True, slots=True)
class Slope:
    """How much the sum of the terms grows by a step, and the error that rounding leaves in it."""

    value: float
    error: float


def _point(generator: np.random.Generator, sample: Sample, index: int) -> Point:
    """The sample's numbers, moved a little, so that none lies where a derivative jumps.

    Every other time they are positive: some functions have no meaning for negative ones.
    """

    def near(array: Array) -> Array:
        if array.dtype != np.float64:
            return array
        array = np.where(np.isfinite(array), array, generator.uniform(-2, 2, array.shape))
        moved = array + generator.uniform(0.001, 0.004, array.shape)
        return np.abs(moved) if index % 2 else moved

    def like(arrays: Sequence[Array]) -> dict[int, Array]:
        floats = [(i, array) for i, array in enumerate(arrays) if array.dtype == np.float64]
        return {i: np.asarray(generator.normal(size=array.shape)) for i, array in floats}

    arrays = [near(array) for array in sample.arrays(DType.F64, RECORDS, seed=index)]
    results = evaluate_node(sample.node(DType.F64), arrays, RECORDS)
    weights = {i: np.where(np.isfinite(results[i]), w, 0) for i, w in like(results).items()}
    return Point(arrays, like(arrays), weights)


def _slope(point: Point, node: Node) -> Slope | None:
    """The slope by central differences; None where a kink, a jump or a pole is within the steps,
    or where no result is finite."""
    weights = list(point.weights.values())
    if any(w.size for w in weights) and not any(w.any() for w in weights):
        return None

    def terms(step: float) -> list[Array]:
        return point.terms(evaluate_node(node, point.moved(step), RECORDS))

    def between(step: float) -> float:
        ahead, behind = (sum(float(t.sum()) for t in terms(s)) for s in (step, -step))
        return (ahead - behind) / (2 * step)

    # Rounding in f64 leaves so much of a difference that is divided by the step.
    error = 1e-8 * (1 + sum(float(abs(t).sum()) for t in terms(0)))
    long, short = map(between, _STEPS)
    smooth = abs(long - short) <= max(1e-6 * abs(short), error)
    return Slope(short, error) if smooth else None


def _along(calls: Sequence[tuple[Node, Point]]) -> list[float]:
    """What the gradients that JAX finds say of each call for a step along its direction."""

    def objective(floats: list[dict[int, Any]]) -> Any:
        total: Any = jnp.float64(0)
        for (node, point), moving in zip(calls, floats, strict=True):
            given = [moving.get(i, jnp.asarray(array)) for i, array in enumerate(point.arrays)]
            terms = point.terms(compute_node(node, given, RECORDS, jax.random.key(0)))
            total += sum((term.sum() for term in terms), jnp.float64(0))
        return total

    moving = [{i: point.arrays[i] for i in point.direction} for _, point in calls]
    gradients = jax.jit(jax.grad(objective))(moving)
    return [
        float(sum((np.asarray(found[i]) * step).sum() for i, step in point.direction.items()))
        for (_, point), found in zip(calls, gradients, strict=True)
    ]
