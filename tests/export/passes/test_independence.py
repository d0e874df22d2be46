"""Batch independence: what is called independent is, and what mixes records is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from sexpgpu.export.graph.graph import Graph, Value
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.passes.at import gather_at
from sexpgpu.export.passes.independence import prove_independence
from sexpgpu.export.passes.prune import remove_dead
from sexpgpu.schemas.errors import SexpgpuError
from support.architectures import ARCHITECTURES
from support.arrays import SEEDS
from support.programs import traced
from support.random_graphs import OPERATIONS, random_graph


@settings(max_examples=50)
@given(SEEDS)
def test_records_called_independent_are(seed: int) -> None:
    for part in range(10):
        made = random_graph(seed + part)
        made.grow(OPERATIONS, int(made.generator.integers(1, 10)))
        outputs = [v for v in made.values if v.node and v.type.shape[:1] == (Batch(),)]
        made.graph.outputs = {f"y{i}": value for i, value in enumerate(outputs)}
        graph = keep_independent(remove_dead(made.graph))
        if not graph.outputs:
            continue
        feeds = made.feeds(3)
        try:
            together = evaluate(graph, feeds, made.weights)
        except SexpgpuError:  # an index out of range
            continue
        for record in range(3):
            one = {name: array[record : record + 1] for name, array in feeds.items()}
            alone = evaluate(graph, one, made.weights)
            for name, want in alone.items():
                # NumPy's products and sums round otherwise for other numbers of rows.
                limit = 2.0**-6 if want.dtype == DType.BF16.numpy else 1e-4
                scale = np.abs(want[np.isfinite(want)].astype(np.float64)).max(initial=1)
                np.testing.assert_allclose(
                    together[name][record : record + 1].astype(np.float64),
                    want.astype(np.float64),
                    rtol=limit,
                    atol=limit * scale,
                )


def keep_independent(graph: Graph) -> Graph:
    """The graph with those of its outputs that are proved to be independent."""
    kept = {
        name: value
        for name, value in graph.outputs.items()
        if prove_independence(
            Graph(graph.inputs, graph.weights, graph.nodes, {name: value})
        ).independent
    }
    pruned = remove_dead(Graph(graph.inputs, graph.weights, graph.nodes, kept))
    assert not kept or prove_independence(pruned).independent
    return pruned


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_are_independent(name: str) -> None:
    graph, _ = traced(ARCHITECTURES[name])
    assert prove_independence(graph).independent
    assert prove_independence(gather_at(graph)).independent


#: How records can be mixed: an expression of x [batch, 6, 4], and the operation that is to blame.
MIXING = {
    "(- x (mean x :axis 0 :keep true))": "mean",
    "(softmax x :axis 0)": "softmax",
    "(sum x :axis 0)": "sum",
    "(max (reshape x (list -1 4)) :axis 0)": "max",
    "(cumsum x :axis 0)": "cumsum",
    "(flip x :axis 0)": "flip",
    "(sort x :axis 0)": "sort",
    "(cast (argmax x :axis 0) f32)": "argmax",
    '(einsum "bij,cij->bc" x x)': "einsum",
    "(matmul (permute x (list 1 2 0)) (permute x (list 1 0 2)))": "matmul",
    "(take x (full (list 1) 0 :dtype i32) :axis 0)": "take",
    "(gather-nd x (full (list 1 1) 0 :dtype i32))": "gather-nd",
    "(concat (list x x) :axis 0)": "concat",
    "(transpose (reshape (permute x (list 1 0 2)) (list -1 4)))": "reshape",
    "(norm x)": "norm",
}


@pytest.mark.parametrize("expression", MIXING)
def test_the_operation_that_mixes_is_named_with_its_line(expression: str) -> None:
    graph, _ = traced(f"""
(def record (fields :x (list f32 6 4)))
(defmodel net () (parts)
  (apply (x)
    (let (y {expression}) (+ (tanh x) (mean y)))))
(def model (net))""")
    verdict = prove_independence(graph)
    assert not verdict.independent
    assert verdict.node is not None
    assert f"`{MIXING[expression]}`" in verdict.reason
    assert "program.sx:5:" in verdict.reason
    assert "mixes the records of its" in verdict.reason


def test_records_that_are_told_by_their_place() -> None:
    graph, _ = traced("""
(def record (fields :x (list f32 6)))
(defmodel net () (parts)
  (apply (x) (+ x (reshape (iota (dim x 0) :dtype f32) (list (dim x 0) 1)))))
(def model (net))""")
    verdict = prove_independence(graph)
    assert not verdict.independent
    assert "`iota` at" in verdict.reason
    assert "tells records by their place" in verdict.reason


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(list :all x :none (param-like))", "`none` is the same for every record"),
        ("(list :turned (transpose x))", "`turned` has the batch as axis 1, not first"),
    ],
)
def test_outputs_without_the_batch_first(expression: str, reason: str) -> None:
    graph, _ = traced(f"""
(def record (fields :x (list f32 6)))
(defmodel net () (parts w (param (list 3)))
  (apply (x) (let (param-like (fn () (tanh w))) {expression})))
(def model (net))""")
    verdict = prove_independence(graph)
    assert not verdict.independent
    assert reason in verdict.reason
    assert verdict.node is None


@pytest.mark.parametrize("shape", [(3,), (3, Batch()), (Batch(), Batch())])
def test_an_input_without_the_batch_first(shape: tuple[int | Batch, ...]) -> None:
    x = Value(TensorType(DType.F32, shape), name="table")
    verdict = prove_independence(Graph(inputs=[x], outputs={"y": x}))
    assert not verdict.independent
    assert "the input `table`" in verdict.reason
