"""Transformers' models with our weights compute what ours mean, in f64 and to f32's last digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array, DType, TensorType
from sexpgpu.tools.bench.export_models import Model, prepare
from sexpgpu.tools.bench.export_ours import subject_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

MODELS = [
    Model("gpt2", "", "gpt2.sx", {"window": 8, "vocab": 50, "dim": 32, "depth": 2, "heads": 2}),
    Model(
        "llama3",
        "",
        "llama3.sx",
        {
            "window": 8,
            "vocab": 50,
            "dim": 32,
            "depth": 2,
            "heads": 4,
            "kv-heads": 2,
            "hidden": 48,
        },
    ),
    Model("resnet50", "", "resnet50.sx", {"size": 32, "classes": 5}),
]


def in_f64(graph: Graph) -> Graph:
    """The same graph of f64."""

    def wide(value: Value) -> Value:
        dtype = DType.F64 if value.type.dtype is DType.F32 else value.type.dtype
        return Value(TensorType(dtype, value.type.shape), name=value.name)

    known = {value: wide(value) for value in (*graph.inputs, *graph.weights.values())}
    nodes = []
    for node in graph.nodes:
        attributes = dict(node.attributes)
        if node.operation.name == "constant" and attributes["value"].dtype == np.float32:
            attributes["value"] = attributes["value"].astype(np.float64)
        nodes.append(make_node(node.operation, [known[v] for v in node.inputs], attributes))
        known.update(zip(node.results, nodes[-1].results, strict=True))
    return Graph(
        [known[value] for value in graph.inputs],
        {path: known[value] for path, value in graph.weights.items()},
        nodes,
        {name: known[value] for name, value in graph.outputs.items()},
    )


def as_f64(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_it_is_the_same_model(model: Model, tmp_path: Path) -> None:
    from sexpgpu.tools.bench import export_theirs

    prepared = prepare(model, tmp_path)
    theirs = export_theirs.build(prepared.description())
    inputs = [export_theirs.inputs_of(prepared.folder)[0][:2]]
    with torch.no_grad():
        expected = theirs(*inputs).numpy()
    (exact,) = export_theirs.evaluate(prepared.description(), inputs)
    assert (expected.dtype, exact.dtype) == (np.float32, np.float64)
    subject = subject_of(prepared.description())
    graph = subject.model.graph
    with np.load(prepared.inputs) as stored:
        given = {
            value.name: stored[key][:2] for value, key in zip(graph.inputs, stored, strict=True)
        }
    (found,) = evaluate(graph, given, subject.read).values()
    for wanted in (expected, exact):
        assert np.max(np.abs(found - wanted)) < 1e-5 * np.max(np.abs(wanted))
    # Nothing in it was rounded to f32, of which 2^-24 would be left.
    widened = {name: as_f64(array) for name, array in given.items()}
    (again,) = evaluate(in_f64(graph), widened, lambda path: as_f64(subject.read(path))).values()
    assert np.max(np.abs(again - exact)) < 1e-11 * np.max(np.abs(exact))
