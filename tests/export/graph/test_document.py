"""model.json: the round trip is exact, and what describes no graph that can run is refused."""

from __future__ import annotations

import json
import random
import struct
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.document import FrozenSource, ModelFile, read_model, write_model
from sexpgpu.export.graph.graph import Graph, make_node
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.programs import GPT, traced

SCAN = """
(def record (fields :x (list f32 6 8)))
(defmodel net ()
  (parts w (linear 8 8) d (param (list 8) :init (uniform -1.0 1.0)))
  (apply (x)
    (let ((h ys) (scan (fn (h x) (let (n (+ (* h (sigmoid d)) (w x))) (list n (tanh n))))
                       (zeros (list (dim x 0) 8)) x :axis 1))
      (list :last h :all ys))))
(def model (net))
"""


def document(text: str = GPT) -> dict[str, Any]:
    graph, _ = traced(text)
    data: dict[str, Any] = json.loads(write_model(ModelFile(graph), "test"))
    return data


def read(data: Any) -> ModelFile:
    return read_model(json.dumps(data).encode(), "model.json")


@pytest.mark.parametrize("text", [GPT, SCAN], ids=["gpt", "scan"])
def test_the_round_trip_is_exact_and_means_the_same(text: str) -> None:
    graph, weights = traced(text)
    frozen = {next(iter(weights)): FrozenSource("w.safetensors", "k", "0" * 64)}
    model = ModelFile(graph, "bf16", "/a/step-00000020", 20, "tiny", frozen)
    data = write_model(model, "sexpgpu 1")
    again = read_model(data, "model.json")
    assert write_model(again, "sexpgpu 1") == data
    assert (again.precision, again.checkpoint, again.step, again.slug) == (
        "bf16",
        "/a/step-00000020",
        20,
        "tiny",
    )
    assert again.frozen == frozen
    feeds = {
        v.name: np.random.default_rng(0)
        .integers(0, 9, (2, *v.type.shape[1:]))
        .astype(v.type.dtype.numpy)
        for v in graph.inputs
    }
    mine, theirs = evaluate(graph, feeds, weights), evaluate(again.graph, feeds, weights)
    assert {k: v.tobytes() for k, v in mine.items()} == {k: v.tobytes() for k, v in theirs.items()}


def constant_graph(array: Array) -> Graph:
    node = make_node(all_operations()["constant"], [], {"value": array})
    return Graph(nodes=[node], outputs={"output": node.results[0]})


FLOAT_WORDS = {np.float32: np.uint32, np.float64: np.uint64, ml_dtypes.bfloat16: np.uint16}


@pytest.mark.parametrize("dtype", list(FLOAT_WORDS), ids=["f32", "f64", "bf16"])
def test_every_float_keeps_its_bits(dtype: Any) -> None:
    word = FLOAT_WORDS[dtype]

    @given(st.lists(st.integers(0, np.iinfo(word).max), max_size=20))
    def round_trip(bits: list[int]) -> None:
        array = np.array(bits, word).view(dtype)
        graph = constant_graph(array)
        again = read_model(write_model(ModelFile(graph), "t"), "m").graph
        value = again.nodes[0].attributes["value"]
        assert value.dtype == array.dtype
        assert value.tobytes() == array.tobytes()

    round_trip()


def test_special_floats_are_text() -> None:
    signalling = struct.unpack("<f", struct.pack("<I", 0xFFC00001))[0]
    array = np.array([np.inf, -np.inf, np.nan, -0.0, signalling], np.float32)
    data = json.loads(write_model(ModelFile(constant_graph(array)), "t"))
    written = data["nodes"][0]["attributes"]["value"]["data"]
    assert written == ["inf", "-inf", "nan", -0.0, "nan:ffc00001"]


@pytest.mark.parametrize("value", [np.inf, -np.inf, -0.0, 0.1, 5e-324])
def test_float_attributes_keep_their_bits(value: float) -> None:
    graph, _ = traced(f"""
(def record (fields :x (list f32 3)))
(defn model (x) (clip x {value if np.isfinite(value) else str(value)} nil))
""")
    again = read_model(write_model(ModelFile(graph), "t"), "m").graph
    kept = next(n for n in again.nodes if n.operation.name == "clip").attributes["low"]
    assert struct.pack("<d", kept) == struct.pack("<d", value)


def refused(data: Any, code: str, place: str) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        read(data)
    assert caught.value.code == code, caught.value.render()
    assert caught.value.place is not None
    assert place in caught.value.place, caught.value.place
    return caught.value


def change(path: str, value: Any) -> dict[str, Any]:
    data = document()
    *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    target: Any = data
    for key in parents:
        target = target[key]
    target[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "code", "place"),
    [
        ("nodes.3.inputs.0", 7, "E-JSON-001", "$.nodes[3].inputs[0]"),
        ("nodes.3.inputs.0", "n999", "E-GRAPH-001", "$.nodes[3].inputs[0]"),
        ("nodes.3.inputs.0", "n50", "E-GRAPH-001", "$.nodes[3].inputs[0]"),
        ("nodes.3.op", "no-such", "E-GRAPH-001", "$.nodes[3].op"),
        ("nodes.3.id", "n0", "E-GRAPH-001", "$.nodes[3].id"),
        ("nodes.3.shape", ["batch", 5], "E-GRAPH-001", "$.nodes[3]"),
        ("nodes.3.dtype", "f64", "E-GRAPH-001", "$.nodes[3]"),
        ("nodes.3.dtype", "f16", "E-JSON-001", "$.nodes[3].dtype"),
        ("nodes.3.attributes", {"x": 1}, "E-GRAPH-001", "$.nodes[3].attributes"),
        ("nodes.2.attributes.axis", "zero", "E-GRAPH-001", "$.nodes[2].attributes.axis"),
        ("outputs.0.value", "n998", "E-GRAPH-001", "$.outputs[0].value"),
        ("outputs.0.shape", ["batch"], "E-GRAPH-001", "$.outputs[0]"),
        ("weights.tok.shape", [-1, 16], "E-JSON-001", "$.weights"),
        ("weights.tok.shape", [10**9, 10**6], "E-GRAPH-001", "$.weights.tok"),
        ("inputs.0.shape", ["batches", 3], "E-JSON-001", "$.inputs[0].shape"),
        ("inputs.0.shape", ["batch", 10**13], "E-GRAPH-001", "$.inputs[0]"),
        ("precision", "f8", "E-JSON-001", "$.precision"),
        ("version", 2, "E-JSON-002", "$.version"),
    ],
)
def test_what_breaks_the_format_is_named_by_its_place(
    path: str, value: Any, code: str, place: str
) -> None:
    if path == "nodes.2.attributes.axis":
        names = [node["op"] for node in document()["nodes"]]
        index = names.index("layer-normalize")
        path = path.replace("nodes.2", f"nodes.{index}")
        place = place.replace("nodes[2]", f"nodes[{index}]")
    refused(change(path, value), code, place)


def test_an_unknown_field_is_refused() -> None:
    refused(document() | {"extra": 1}, "E-JSON-001", "$")


def test_an_attribute_that_is_younger_than_the_file_has_its_default() -> None:
    data = document()
    index = [node["op"] for node in data["nodes"]].index("layer-normalize")
    assert data["nodes"][index]["attributes"].pop("epsilon") == 1e-5
    assert read(data).graph.nodes[index].attributes["epsilon"] == 1e-5


def test_a_constant_that_claims_more_than_it_has_allocates_nothing() -> None:
    value = {"dtype": "f32", "shape": [10**6, 10**6], "data": [1.0]}
    node = {"id": "n0", "op": "constant", "inputs": [], "shape": [1], "dtype": "f32",
            "attributes": {"value": value}}  # fmt: skip
    data = {"version": 1, "producer": "t", "weights": {}, "inputs": [], "nodes": [node],
            "outputs": [{"name": "o", "shape": [1], "dtype": "f32", "value": "n0"}]}  # fmt: skip
    refused(data, "E-GRAPH-001", "$.nodes[0].attributes.value")


def test_mutated_documents_raise_errors_of_ours_and_quickly() -> None:
    """Bytes and values are changed at random; whatever comes out is a graph or a SexpgpuError."""
    original = write_model(ModelFile(traced(SCAN)[0]), "t")
    generator = random.Random(0)
    words = [b"-1", b"1e999", b"null", b'"batch"', b"[]", b"{}", b"99999999999999999999", b'"n0"']
    start = time.monotonic()
    for _ in range(400):
        data = bytearray(original)
        for _ in range(generator.randint(1, 4)):
            place = generator.randrange(len(data))
            if generator.random() < 0.5:
                data[place] = generator.randrange(256)
            else:
                end = min(len(data), place + generator.randint(0, 12))
                data[place:end] = generator.choice(words)
        try:
            read_model(bytes(data), "model.json")
        except SexpgpuError:
            continue
    assert time.monotonic() - start < 120


def test_deep_nesting_is_an_error() -> None:
    data = document()
    text = json.dumps(data).replace('"version": 1', '"version": 1, "producer": ' + "[" * 100_000)
    with pytest.raises(SexpgpuError) as caught:
        read_model(text.encode(), "model.json")
    assert caught.value.code == "E-JSON-001"


def test_released_versions_can_be_read() -> None:
    """One file of every version ever released stays here."""
    for path in sorted((Path(__file__).parent / "released").glob("model-v*.json")):
        model = read_model(path.read_bytes(), str(path))
        assert model.graph.outputs, path
