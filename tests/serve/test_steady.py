"""What is served in other operations means the same, and what needs no other stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Batch, DType
from sexpgpu.serve.steady import make_steady
from support.hosting import sample_graph
from support.samples import B, Sample, all_samples, call, numbers

REWRITTEN = (
    "log log1p softplus elu sin cos tan exp expm1 tanh sigmoid silu gelu erf maximum minimum "
    "max-pool max min softmax log-softmax layer-normalize rms-normalize sum mean variance logsumexp"
).split()


@pytest.mark.parametrize("name", REWRITTEN)
def test_the_meaning_stays(name: str) -> None:
    changed = 0
    for sample in all_samples():
        if sample.operation.name != name:
            continue
        for dtype in sample.dtypes:
            made = sample_graph(sample, dtype)
            if made is None:
                continue
            graph, weights = made
            steady = make_steady(graph)
            assert {n: v.type for n, v in steady.outputs.items()} == {
                n: v.type for n, v in graph.outputs.items()
            }
            changed += len(steady.nodes) != len(graph.nodes)
            _same(graph, steady, sample, dtype, weights)
    assert changed, f"{name} is never written otherwise"


def _same(graph: Graph, steady: Graph, sample: Sample, dtype: DType, weights: object) -> None:
    assert isinstance(weights, dict)
    arrays = {
        f"x{i}": np.moveaxis(array, tensor.batch_axis, 0)
        for i, (tensor, array) in enumerate(zip(sample.tensors, sample.arrays(dtype), strict=True))
        if tensor.batch_axis is not None
    }
    with np.errstate(all="ignore"):
        want = evaluate(graph, arrays, weights)
        found = evaluate(steady, arrays, weights)
    tolerance = {DType.F64: 1e-12, DType.BF16: 2.0**-7}.get(dtype, 1e-5)
    for name, array in want.items():
        np.testing.assert_allclose(
            found[name].astype(np.float64),
            array.astype(np.float64),
            rtol=tolerance,
            atol=tolerance,
        )


def operations(sample: Sample, dtype: DType = DType.F32) -> list[str]:
    made = sample_graph(sample, dtype)
    assert made is not None
    return [node.operation.name for node in make_steady(made[0]).nodes]


def test_whole_vectors_need_no_other() -> None:
    assert operations(call("log", numbers(B, 32))) == ["log"]
    assert operations(call("sin", numbers(B, 4, 4))) == ["sin"]
    assert operations(call("mean", numbers(B, 3, 64), axis=(-1,)))[0] == "sum"
    assert operations(call("rms-normalize", numbers(B, 3, 64))) == ["rms-normalize"]
    assert operations(call("maximum", numbers(B, 16), numbers(B, 16))) == ["maximum"]


def test_the_steps_of_transformers_stay() -> None:
    for sample in (
        call("softmax", numbers(B, 4, 7)),
        call("layer-normalize", numbers(B, 4, 7)),
        call("gelu", numbers(B, 7)),
        call("silu", numbers(B, 7)),
        call("matmul", numbers(B, 4, 7), numbers(7, 5)),
    ):
        assert operations(sample) == [sample.operation.name]


def test_a_tail_is_filled_up_to_a_vector() -> None:
    assert operations(call("log", numbers(B, 7))) == ["pad", "log", "slice"]
    assert operations(call("log", numbers(B, 7, 3))) == [
        "reshape",
        "pad",
        "log",
        "slice",
        "reshape",
    ]


def test_what_has_no_records_stays() -> None:
    empty = call("sum", numbers(B, 0, 2), axis=(1,))
    assert operations(empty) == ["sum"]
    whole = call("sum", numbers(B, 7), axis=(0, 1))
    assert operations(whole) == ["sum"]


def test_bodies_of_scans_are_written_otherwise_too() -> None:
    sample = next(
        s for s in all_samples() if s.operation.name == "scan" and s.batch_axes.count(0) == 2
    )
    made = sample_graph(sample, DType.F64)
    assert made is not None
    graph = make_steady(made[0])
    bodies = [n.attributes["body"] for n in graph.nodes if "body" in n.attributes]
    assert bodies
    assert Batch() in bodies[0].inputs[0].type.shape or bodies[0].inputs
