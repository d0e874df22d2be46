"""Every operation in JAX gives what its NumPy meaning gives, and so do its gradients."""

from __future__ import annotations

from functools import partial

import jax
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
_STEP = 1e-6


def test_every_operation_has_a_rule() -> None:
    assert all_rules().keys() == all_operations().keys()


def in_jax(node: Node, arrays: list[Array], records: int = RECORDS) -> list[Array]:
    """The node's results, compiled."""
    function = jax.jit(partial(compute_node, node, batch=records, key=jax.random.key(0)))
    return [np.asarray(result) for result in function(arrays)]


def _absolute(sample: Sample, dtype: DType) -> float | None:
    if dtype is not DType.F32 or sample.operation.family not in _SUMS:
        return None
    return 2e-2 if sample.attributes.get("precision") == "bf16" else 2e-5


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_values_are_those_of_the_reference(name: str, dtype: DType) -> None:
    for sample in samples_of(name, dtype):
        for records in (RECORDS, 1):
            node, arrays = sample.node(dtype), sample.arrays(dtype, records)
            want = evaluate_node(node, arrays, records)
            for found, expected in zip(in_jax(node, arrays, records), want, strict=True):
                try:
                    assert_close(found, expected, absolute=_absolute(sample, dtype))
                except AssertionError as error:
                    raise AssertionError(f"{sample} in {dtype}: {error}") from None


DIFFERENTIABLE = [name for name, dtype in CASES if dtype is DType.F64]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    """Along a random direction, in f64, beside the kinks and jumps that an operation may have."""
    generator = np.random.default_rng(0)
    for sample in samples_of(name, DType.F64):
        node = sample.node(DType.F64)
        arrays = [_beside(generator, array) for array in sample.arrays(DType.F64, RECORDS)]
        floats = [i for i, array in enumerate(arrays) if array.dtype == np.float64 and array.size]
        results = evaluate_node(node, arrays, RECORDS)
        if not floats or not all(np.isfinite(array).all() for array in [*arrays, *results]):
            continue
        weights = [
            generator.normal(size=result.shape) if result.dtype == np.float64 else None
            for result in results
        ]
        direction = {i: generator.normal(size=arrays[i].shape) for i in floats}

        def moved(step: float) -> list[Array]:
            return [
                array + step * direction[i] if i in direction else array  # noqa: B023
                for i, array in enumerate(arrays)  # noqa: B023
            ]

        def total(results: list[Array]) -> float:
            pairs = zip(results, weights, strict=True)  # noqa: B023
            return float(sum((r * w).sum() for r, w in pairs if w is not None))

        ahead, behind = (
            total(evaluate_node(node, moved(step), RECORDS)) for step in (_STEP, -_STEP)
        )
        found = _along(node, arrays, weights, direction)
        # Rounding in f64 leaves so much of a difference that is divided by the step.
        size = 1 + sum(float(np.abs(r).sum()) for r in results if r.dtype == np.float64)
        assert found == pytest.approx((ahead - behind) / (2 * _STEP), rel=1e-5, abs=1e-8 * size), (
            f"{sample}"
        )


def _along(
    node: Node, arrays: list[Array], weights: list[Array | None], direction: dict[int, Array]
) -> float:
    """What the gradients that JAX finds say of a step along the direction."""

    def objective(floats: dict[int, jax.Array]) -> jax.Array:
        given = [floats.get(i, array) for i, array in enumerate(arrays)]
        results = compute_node(node, given, RECORDS, jax.random.key(0))
        pairs = zip(results, weights, strict=True)
        return sum(((r * w).sum() for r, w in pairs if w is not None), np.float64(0))

    gradients = jax.jit(jax.grad(objective))({i: arrays[i] for i in direction})
    return float(sum((np.asarray(gradients[i]) * step).sum() for i, step in direction.items()))


def _beside(generator: np.random.Generator, array: Array) -> Array:
    """Floats moved a little, so that none lies where a derivative jumps."""
    if array.dtype != np.float64:
        return array
    return array + generator.uniform(0.001, 0.004, array.shape)
