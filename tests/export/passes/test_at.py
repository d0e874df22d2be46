"""The gather for --at: the row of the window, moved up as far as it can be, with the same bits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType, concrete
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.export.passes.at import gather_at
from sexpgpu.export.passes.fold import fold_constants
from sexpgpu.export.passes.prune import remove_dead
from sexpgpu.schemas.errors import SexpgpuError
from support.architectures import ARCHITECTURES
from support.arrays import SEEDS
from support.programs import GPT, traced
from support.random_graphs import OPERATIONS, RandomGraph, random_graph

WINDOW = 12
#: Families of operations that sum.
SUMMING = {"attention", "linear", "loss", "neural", "normalization", "recurrence", "reduce"}
#: Copies of the row; no other axis of these models has this length.
ROWS = 2


def rows_of(whole: Mapping[str, Array], at: Array) -> dict[str, Array]:
    """What `--at` means: one position a record, its axis kept."""
    return {name: array[np.arange(len(at)), at][:, None] for name, array in whole.items()}


def positions_of(graph: Graph, length: int) -> list[str]:
    """The operations that work on an axis of so many positions and not on rows, by scope."""
    return [
        f"{node.scope}/{node.operation.name}"
        for node in graph.nodes
        if node.inputs
        for value in node.results
        if length in value.type.shape and ROWS not in value.type.shape
    ]


def feeds_of(graph: Graph, batch: int, generator: np.random.Generator) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for value in graph.inputs:
        shape, dtype = concrete(value.type.shape, batch), value.type.dtype
        if dtype is DType.BOOL:
            feeds[value.name] = generator.random(shape) < 0.7
        elif dtype.is_integer:
            feeds[value.name] = generator.integers(0, 40, shape).astype(dtype.numpy)
        else:
            feeds[value.name] = generator.normal(size=shape).astype(dtype.numpy)
    return feeds


# Meaning


def with_outputs(made: RandomGraph) -> Graph | None:
    """The graph with some values that have an axis of positions as its outputs."""
    fitting = [
        value
        for value in made.values
        if value.node and value.type.rank > 1 and value.type.shape[:2] == (Batch(), made.positions)
    ]
    if not fitting:
        return None
    chosen = fitting if made.generator.random() < 0.5 else fitting[-1:]
    made.graph.outputs = {f"y{i}": value for i, value in enumerate(chosen)}
    return remove_dead(made.graph)


@settings(max_examples=50)
@given(SEEDS)
def test_a_row_of_any_graph_is_the_windows(seed: int) -> None:
    for part in range(8):
        made = random_graph(seed + part)
        made.grow(OPERATIONS, int(made.generator.integers(1, 14)))
        graph = with_outputs(made)
        if graph is None:
            continue
        batch = int(made.generator.integers(1, 4))
        feeds = made.feeds(batch)
        at = made.generator.integers(0, made.positions, batch).astype(np.int32)
        try:
            whole = evaluate(graph, feeds, made.weights)
        except SexpgpuError:  # an index out of range
            continue
        found = evaluate(gather_at(graph), {**feeds, "at": at}, made.weights)
        for name, want in rows_of(whole, at).items():
            assert (found[name].dtype, found[name].shape) == (want.dtype, want.shape)
            if not SUMMING & {node.operation.family for node in graph.nodes}:
                # Bit for bit, but for which NaN it is.
                np.testing.assert_array_equal(
                    found[name].astype(np.float64), want.astype(np.float64), strict=True
                )
                continue
            # NumPy's sums round otherwise for fewer rows.
            limit = 2.0**-6 if want.dtype == DType.BF16.numpy else 1e-4
            np.testing.assert_allclose(
                found[name].astype(np.float64),
                want.astype(np.float64),
                rtol=limit,
                atol=limit * max(1.0, largest(want)),
            )


def largest(array: Array) -> float:
    wide = np.abs(array.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0))


def test_records_that_mix_keep_the_rows_of_the_window() -> None:
    # Over the batch, a record's row reads the same position of the others, not their rows.
    graph, weights = traced("""
(def record (fields :x (list f32 12 4)))
(defmodel net () (parts) (apply (x) (exp (log-softmax (tanh x) :axis 0))))
(def model (net))""")
    generator = np.random.default_rng(0)
    feeds, at = feeds_of(graph, 3, generator), np.array([0, 5, 11], np.int32)
    want = rows_of(evaluate(graph, feeds, weights), at)
    found = evaluate(gather_at(graph), {**feeds, "at": at}, weights)
    np.testing.assert_array_equal(found["output"], want["output"])


def test_an_output_with_the_batch_twice() -> None:
    batch = Batch()
    x = Value(TensorType(DType.F32, (batch, 5, 3)), name="x")
    y = Value(TensorType(DType.F32, (3, 4)), name="y")
    by_record = make_node(all_operations()["einsum"], [x, x], attributes(equation="atk,bsk->atb"))
    product = make_node(all_operations()["matmul"], [x, y], {"precision": "f32"})
    outputs = {"pairs": by_record.results[0], "plain": product.results[0]}
    graph = Graph([x], {"y": y}, [by_record, product], outputs)
    generator = np.random.default_rng(0)
    feeds = {"x": generator.normal(size=(3, 5, 3)).astype(np.float32)}
    weights = {"y": generator.normal(size=(3, 4)).astype(np.float32)}
    at = np.array([4, 0, 2], np.int32)
    want = rows_of(evaluate(graph, feeds, weights), at)
    found = evaluate(gather_at(graph), {**feeds, "at": at}, weights)
    for name in want:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-5)


def attributes(**given: object) -> dict[str, object]:
    return {"precision": "f32", **given}


# Bits, in ONNX Runtime


def session(graph: Graph, weights: Mapping[str, Array], threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    model = build_model(fold_constants(graph), weights.__getitem__, BuildOptions())
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(session: ort.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_row_has_the_bits_of_the_window(name: str) -> None:
    graph, weights = traced(ARCHITECTURES[name])
    reduced = gather_at(graph)
    generator = np.random.default_rng(0)
    for threads in (1, 2):
        window, row = session(graph, weights, threads), session(reduced, weights, threads)
        for batch in (1, 2, 3, 4):
            feeds = feeds_of(graph, batch, generator)
            whole = run(window, feeds)
            for at in (
                np.zeros(batch, np.int32),
                np.full(batch, WINDOW - 1, np.int32),
                generator.integers(0, WINDOW, batch).astype(np.int32),
            ):
                found = run(row, {**feeds, "at": at})
                for output, want in rows_of(whole, at).items():
                    assert found[output].tobytes() == want.tobytes(), (threads, batch, at)


# How far the gather moves up


def test_after_the_last_keys_and_values_there_are_rows_alone() -> None:
    graph = gather_at(traced(GPT)[0])
    whole = positions_of(graph, WINDOW)
    last = [name for name in whole if name.startswith(("blocks.1", "norm", "/"))]
    assert set(last) == {
        "/take",
        "/+",
        "blocks.1.norm-1/layer-normalize",
        "blocks.1.attention.k/matmul",
        "blocks.1.attention.k/+",
        "blocks.1.attention.v/matmul",
        "blocks.1.attention.v/+",
        "blocks.1.attention/reshape",
        "blocks.1.attention/permute",
    }
    gathers = [node for node in graph.nodes if node.operation.name == "gather-nd"]
    assert len(gathers) == 2, "the residual, and what the queries read"


@pytest.mark.parametrize(
    ("name", "on_rows"),
    [
        ("experts", "blocks.1.norm-2/ blocks.1.mlp blocks.1/ norm/ head/"),
        ("split qkv, permuted", "/attention out/ /+"),
        ("causal convolution", "/+ head/"),
        ("lstm", "head/"),
        ("gru", "head/"),
        ("scan", "head/"),
        ("cumulative sums", "/tanh head/"),
        ("mask of a constant table", "q/ /where /softmax head/"),
        ("heads put apart by einsum", "/softmax /+"),
        ("positions from iota", "/gelu head/"),
        ("mask as an input", "/+ head/ attention.q/ attention/attention attention.out/"),
    ],
)
def test_what_works_on_rows(name: str, on_rows: str) -> None:
    reduced = gather_at(traced(ARCHITECTURES[name])[0])
    whole = positions_of(reduced, WINDOW)
    assert whole, "something must read the window"
    assert [n for n in whole if n.startswith(tuple(on_rows.split()))] == []


def test_a_window_of_two_is_gathered_where_it_is_read() -> None:
    graph, _ = traced(GPT, {"window": 2})
    reduced = gather_at(graph)
    assert len(reduced.nodes) > len(graph.nodes)
    assert [n.operation.name for n in reduced.nodes if n.operation.name == "gather-nd"] == [
        "gather-nd"
    ]


# What it refuses


def refused(text: str) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        gather_at(traced(text)[0])
    assert caught.value.code == "E-EXPORT-003"
    return caught.value


def test_an_output_without_positions_is_named() -> None:
    error = refused("""
(def record (fields :x (list f32 12 4)))
(defmodel net () (parts) (apply (x) (list :rows (tanh x) :pooled (mean x :axis (list 1 2)))))
(def model (net))""")
    assert "`pooled`" in error.message
    assert error.came == "[batch]"
    assert "--output" in (error.help or "")


def test_outputs_of_two_lengths_are_named() -> None:
    error = refused("""
(def record (fields :x (list f32 12 4)))
(defmodel net () (parts) (apply (x) (list :long (tanh x) :short (tanh (slice x :axis 1 :to 3)))))
(def model (net))""")
    assert error.came == "`long` has 12, `short` has 3"


def test_a_model_that_has_an_at_already() -> None:
    x = Value(TensorType(DType.F32, (Batch(), 3)), name="at")
    with pytest.raises(SexpgpuError) as caught:
        gather_at(Graph(inputs=[x], outputs={"y": x}))
    assert caught.value.code == "E-EXPORT-003"


@pytest.mark.parametrize("at", [-1, WINDOW])
@pytest.mark.parametrize("name", ["rotary, rms norm, swiglu", "learned positions, tied head"])
def test_an_at_outside_the_axis_stops_the_call(name: str, at: int) -> None:
    graph, weights = traced(ARCHITECTURES[name])
    reduced = gather_at(graph)
    feeds = {"inputs": np.zeros((1, WINDOW), np.int32), "at": np.array([at], np.int32)}
    with pytest.raises(SexpgpuError) as caught:
        evaluate(reduced, feeds, weights)
    assert caught.value.code == "E-VALUE-001"
    with pytest.raises(Exception, match=r"index found|indices element"):
        run(session(reduced, weights, 1), feeds)
