"""scan in JAX: gradients through carries and what a body captures, and draws at every step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sexpgpu.export.graph.graph import Graph, Node, Value, make_node
from sexpgpu.export.graph.types import DType, TensorType
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.tools.train.lowering.compute import compute_node
from support.differentiated import KEY, normal

STEPS, WIDTH = 6, 4
VECTOR = TensorType(DType.F64, (WIDTH,))


def node(name: str, *inputs: Value, **attributes: Any) -> Node:
    operation = all_operations()[name]
    defaults = {a.name: a.default for a in operation.signature.attributes}
    return make_node(operation, inputs, {**defaults, **attributes})


def scan_of(body: Graph, *types: TensorType, **attributes: Any) -> Node:
    inputs = [Value(type, name=f"x{index}") for index, type in enumerate(types)]
    return node("scan", *inputs, body=body, **attributes)


def run(scan: Node, *arrays: Any, key: jax.Array = KEY) -> list[jax.Array]:
    return compute_node(scan, list(arrays), 1, key)


def decaying() -> Graph:
    """carry ← tanh(carry · captured + slice), which each step also adds."""
    carry, step, captured = (Value(VECTOR, name=name) for name in ("carry", "step", "captured"))
    product = node("*", carry, captured)
    total = node("+", product.results[0], step)
    after = node("tanh", total.results[0])
    return Graph(
        inputs=[carry, step, captured],
        nodes=[product, total, after],
        outputs={"after": after.results[0], "added": after.results[0]},
    )


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_go_back_through_all_steps(axis: int, reverse: bool) -> None:
    shape = (STEPS, WIDTH) if axis == 0 else (WIDTH, STEPS)
    scan = scan_of(
        decaying(),
        *(VECTOR, TensorType(DType.F64, shape), VECTOR),
        carries=1,
        sequences=1,
        axis=axis,
        reverse=reverse,
    )
    arrays = [normal(*s, seed=i, dtype=np.float64) for i, s in enumerate(((4,), shape, (4,)))]
    weights = normal(*shape, seed=7, dtype=np.float64)

    def plain(carry: Any, steps: Any, captured: Any) -> Any:
        rows: list[Any] = [None] * STEPS
        for i in reversed(range(STEPS)) if reverse else range(STEPS):
            carry = jnp.tanh(carry * captured + jnp.take(steps, i, axis))
            rows[i] = carry
        return (jnp.stack(rows, axis) * weights).sum() + (carry**2).sum()

    def ours(*arrays: Any) -> Any:
        final, stacked = run(scan, *arrays)
        return (stacked * weights).sum() + (final**2).sum()

    want = jax.grad(plain, argnums=(0, 1, 2))(*map(jnp.asarray, arrays))
    found = jax.jit(jax.grad(ours, argnums=(0, 1, 2)))(*arrays)
    for gradient, wanted in zip(found, want, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-12, atol=1e-14)


def test_no_steps_leave_the_carry_and_its_gradient() -> None:
    scan = scan_of(
        decaying(), VECTOR, TensorType(DType.F64, (0, WIDTH)), VECTOR, carries=1, sequences=1
    )
    carry, captured = np.arange(4.0), np.ones(4)
    final, stacked = run(scan, carry, np.zeros((0, WIDTH)), captured)
    np.testing.assert_array_equal(final, carry)
    assert stacked.shape == (0, WIDTH)
    gradient = jax.grad(lambda c: run(scan, c, np.zeros((0, WIDTH)), captured)[0].sum())(carry)
    np.testing.assert_array_equal(gradient, np.ones(4))


def drawing() -> Graph:
    """Each step adds noise of its own to its slice, in a scan of its own."""
    step = Value(VECTOR, name="step")
    noise = node("random-normal", shape=(WIDTH,), dtype=DType.F64)
    total = node("+", step, noise.results[0])
    return Graph(inputs=[step], nodes=[noise, total], outputs={"added": total.results[0]})


def test_every_step_draws_for_itself() -> None:
    scan = scan_of(drawing(), TensorType(DType.F64, (STEPS, WIDTH)), carries=0, sequences=1)
    zeros = np.zeros((STEPS, WIDTH))
    (drawn,) = jax.jit(lambda x: run(scan, x))(zeros)
    assert len(np.unique(drawn)) == STEPS * WIDTH
    np.testing.assert_array_equal(drawn, run(scan, zeros)[0])
    assert not np.any(drawn == run(scan, zeros, key=jax.random.key(1))[0])


def test_every_step_of_a_scan_in_a_scan_draws_for_itself() -> None:
    rows = TensorType(DType.F64, (STEPS, WIDTH))
    inside = scan_of(drawing(), rows, carries=0, sequences=1)
    body = Graph(inputs=list(inside.inputs), nodes=[inside], outputs={"added": inside.results[0]})
    scan = scan_of(body, TensorType(DType.F64, (3, STEPS, WIDTH)), carries=0, sequences=1)
    (drawn,) = run(scan, np.zeros((3, STEPS, WIDTH)))
    assert len(np.unique(drawn)) == 3 * STEPS * WIDTH
