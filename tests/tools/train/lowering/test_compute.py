"""Whole graphs in JAX: every value is what the reference makes of the values before it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from sexpgpu.export.graph.graph import Graph, Node, Value
from sexpgpu.export.graph.reference import evaluate, evaluate_node
from sexpgpu.export.graph.types import Array, DType, concrete
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.lowering.compute import compute
from support.architectures import ARCHITECTURES
from support.arrays import SEEDS
from support.harness import ABSOLUTE, RELATIVE
from support.programs import traced
from support.random_graphs import OPERATIONS, random_graph
from support.random_plain import random_numbers

RECORDS = 3
#: A result may be as far from the reference's as it moves where each operand is moved by up to so
#: much of itself, which says how much rounding is worth to it: sums that cancel, poles, powers.
_MOVE = {DType.F32: 2.0**-20, DType.F64: 2.0**-48, DType.BF16: 2.0**-20}
_MOVES = 4


def every_value(graph: Graph) -> dict[Value, str]:
    """A name for everything that the graph computes."""
    values = [value for node in graph.nodes for value in node.results]
    return {value: f"v{index}" for index, value in enumerate(values)}


def in_jax(graph: Graph, feeds: dict[str, Array], weights: dict[str, Array]) -> dict[str, Array]:
    """The graph's outputs, compiled as one program."""

    @jax.jit
    def program(feeds: dict[str, jax.Array], weights: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return compute(graph, feeds, weights, RECORDS)

    return {name: np.asarray(array) for name, array in program(feeds, weights).items()}


def check_every_node(graph: Graph, feeds: dict[str, Array], weights: dict[str, Array]) -> None:
    """Sees each node's results in JAX beside what the reference makes of its operands in JAX.

    So nothing that one node loses is charged to another, and a number that lies between two
    branches takes the same one on both sides.
    """
    names = every_value(graph)
    whole = Graph(
        inputs=graph.inputs,
        weights=graph.weights,
        nodes=graph.nodes,
        outputs={name: value for value, name in names.items()},
    )
    found = in_jax(whole, feeds, weights)
    known = {value: found[name] for value, name in names.items()}
    known |= {value: feeds[value.name] for value in graph.inputs}
    known |= {value: weights[path] for path, value in graph.weights.items()}
    for node in graph.nodes:
        operands = [known[value] for value in node.inputs]
        want = evaluate_node(node, operands, RECORDS)
        for place, value in enumerate(node.results):
            error = _excess(node, operands, place, known[value], want[place])
            assert error is None, f"{node.operation.name} {node.attributes}: {error}"


def _excess(node: Node, operands: list[Array], place: int, found: Array, want: Array) -> str | None:
    """What is wrong with a result, in words; None where nothing is."""
    dtype = DType.of(want)
    if (found.dtype, found.shape) != (want.dtype, want.shape):
        return f"{found.dtype} {found.shape}, not {want.dtype} {want.shape}"
    if not dtype.is_float:
        return None if (found == want).all() else f"{found}, not {want}"
    error = _distance(found, want)
    allowed = np.nan_to_num(RELATIVE[dtype] * abs(want.astype(np.float64)), nan=0, posinf=0)
    allowed += ABSOLUTE[dtype]
    if (error <= allowed).all():
        return None
    generator = np.random.default_rng(0)
    for _ in range(_MOVES):
        moved = evaluate_node(node, [_moved(generator, x) for x in operands], RECORDS)[place]
        allowed += _distance(moved, want)
    wrong = error > allowed
    return f"{found[wrong]}, not {want[wrong]}" if wrong.any() else None


def _distance(a: Array, b: Array) -> Array:
    """How far numbers are apart; NaN is infinitely far from all but NaN."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(abs(a - b), nan=np.inf, posinf=np.inf)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, apart)


def _moved(generator: np.random.Generator, array: Array) -> Array:
    dtype = DType.of(array)
    if not dtype.is_float:
        return array
    factor = 1 + _MOVE[dtype] * generator.uniform(-1, 1, array.shape)
    # What is less than a unit in the last place of bf16 cannot be moved in it.
    return np.asarray(array.astype(np.float64) * factor).astype(array.dtype)


@settings(max_examples=15)
@given(SEEDS)
def test_any_graph_is_computed_as_the_reference_does(seed: int) -> None:
    made = random_graph(seed)
    made.grow(OPERATIONS, 12)
    feeds = made.feeds(RECORDS)
    try:
        evaluate(made.graph, feeds, made.weights)
    except SexpgpuError:  # an index out of range
        return
    check_every_node(made.graph, feeds, made.weights)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_computed_as_the_reference_does(name: str) -> None:
    graph, weights = traced(ARCHITECTURES[name])
    generator = np.random.default_rng(0)
    feeds = {
        value.name: random_numbers(generator, value.type.dtype, concrete(value.type.shape, RECORDS))
        for value in graph.inputs
    }
    check_every_node(graph, feeds, weights)


def test_bf16_is_rounded_where_the_program_rounds() -> None:
    """XLA may keep the digits of what is rounded and widened at once; here it must not."""
    graph, weights = traced("""
(def record (fields :x (list f32 64)))
(defmodel net () (parts)
  (apply (x)
    (let (narrow (cast x bf16))
      (- (cast (* (+ narrow narrow) (exp narrow)) f32) (* (* x 2) (exp x))))))
(def model (net))""")
    x = np.random.default_rng(0).normal(size=(RECORDS, 64)).astype(np.float32)
    feeds = {graph.inputs[0].name: x}
    [found] = in_jax(graph, feeds, weights).values()
    [want] = evaluate(graph, feeds, weights).values()
    assert abs(want).max() > 1e-3
    np.testing.assert_allclose(found, want, atol=1e-5)


def test_a_node_that_gives_another_type_than_inferred_is_a_defect() -> None:
    graph, _ = traced("""
(def record (fields :x (list f32 4)))
(defmodel net () (parts) (apply (x) (tanh x)))
(def model (net))""")
    few = {graph.inputs[0].name: jnp.zeros((2, 4), np.float32)}
    with pytest.raises(AssertionError, match=r"tanh gave \(2, 4\) float32"):
        compute(graph, few, {}, RECORDS)
