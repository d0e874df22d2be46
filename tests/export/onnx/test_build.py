"""A whole graph into an ONNX model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.onnx.build import BuildOptions, ExternalTensor, build_model, ir_version
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import run_onnx
from support.programs import GPT, traced

X = TensorType(DType.F32, (Batch(), 3))


def unary(name: str, *, type: TensorType = X) -> Graph:
    x = Value(type, name="x")
    node = make_node(all_operations()[name], [x], {})
    return Graph([x], {}, [node], {"y": node.results[0]})


def test_the_interface_is_the_graphs() -> None:
    graph, weights = traced(GPT)
    model = build_model(graph, weights.__getitem__, BuildOptions(name="gpt"))
    onnx.checker.check_model(model, full_check=True)
    assert [v.name for v in model.graph.input] == ["inputs"]
    (output,) = model.graph.output
    kind = output.type.tensor_type
    assert (output.name, kind.elem_type) == ("output", onnx.TensorProto.FLOAT)
    assert [d.dim_param or d.dim_value for d in kind.shape.dim] == ["batch", 12, 40]
    assert (model.graph.name, model.producer_name) == ("gpt", "sexpgpu")


def test_a_multiple_of_the_batch_is_written_as_such() -> None:
    x = Value(TensorType(DType.F32, (Batch(6), 3)), name="x")
    model = build_model(Graph([x], {}, [], {"y": x}), {}.__getitem__, BuildOptions())
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "6*batch"


def test_a_fixed_batch_is_a_number() -> None:
    graph, weights = traced(GPT)
    model = build_model(graph, weights.__getitem__, BuildOptions(batch=5))
    shapes = [v.type.tensor_type.shape.dim for v in (*model.graph.input, *model.graph.output)]
    assert [shape[0].dim_value for shape in shapes] == [5, 5]


@pytest.mark.parametrize(
    ("opset", "version"),
    [(18, 8), (19, 9), (20, 9), (21, 10), (22, 10), (23, 11), (24, 12), (25, 13)],
)
def test_the_least_ir_version(opset: int, version: int) -> None:
    assert ir_version(opset) == version
    model = build_model(unary("exp"), {}.__getitem__, BuildOptions(opset=opset))
    assert (model.opset_import[0].version, model.ir_version) == (opset, version)
    onnx.checker.check_model(model, full_check=True)
    # What onnx itself holds to be the least.
    table = {v[2]: v[1] for v in onnx.helper.VERSION_TABLE}
    assert version == table[opset]


def test_metadata() -> None:
    options = BuildOptions(metadata={"b": "2", "a": "1"})
    model = build_model(unary("exp"), {}.__getitem__, options)
    assert {e.key: e.value for e in model.metadata_props} == {"a": "1", "b": "2"}


# Weights


def weighted(dtype: DType) -> tuple[Graph, Array]:
    x = Value(TensorType(dtype, (Batch(), 3)), name="x")
    w = Value(TensorType(dtype, (3,)), name="layer.w")
    node = make_node(all_operations()["*"], [x, w], {})
    array = np.array([1, 2, 3]).astype(dtype.numpy)
    return Graph([x], {"layer.w": w}, [node], {"y": node.results[0]}), array


def test_a_weight_in_a_file() -> None:
    graph, _ = weighted(DType.F32)
    place = ExternalTensor("params.safetensors", 80, 12, DType.F32)
    model = build_model(graph, {"layer.w": place}.__getitem__, BuildOptions())
    (tensor,) = model.graph.initializer
    assert tensor.name == "layer.w"
    assert tensor.data_location == onnx.TensorProto.EXTERNAL
    assert not tensor.raw_data
    assert {e.key: e.value for e in tensor.external_data} == {
        "location": "params.safetensors",
        "offset": "80",
        "length": "12",
    }


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64])
def test_a_weight_inside(dtype: DType) -> None:
    graph, array = weighted(dtype)
    model = build_model(graph, {"layer.w": array}.__getitem__, BuildOptions())
    x = np.array([[2, 3, 4]]).astype(dtype.numpy)
    assert run_onnx(model, {"x": x})["y"].tolist() == [[2, 6, 12]]


@pytest.mark.parametrize("stored", [DType.BF16, DType.F64])
def test_a_weight_that_is_stored_in_another_dtype_is_cast(stored: DType) -> None:
    graph, array = weighted(DType.F32)
    model = build_model(graph, lambda path: array.astype(stored.numpy), BuildOptions())
    assert [n.op_type for n in model.graph.node] == ["Cast", "Mul"]
    x = np.float32([[2, 3, 4]])
    assert run_onnx(model, {"x": x})["y"].tolist() == [[2, 6, 12]]


def test_weights_that_nothing_reads_are_left_out() -> None:
    graph, array = weighted(DType.F32)
    graph.weights["unread"] = Value(TensorType(DType.F32, (9,)), name="unread")
    model = build_model(graph, lambda path: array, BuildOptions())
    assert [t.name for t in model.graph.initializer] == ["layer.w"]


# Names


def test_a_weight_with_the_name_of_an_input_or_output() -> None:
    x, w = Value(X, name="x"), Value(TensorType(DType.F32, (3,)), name="x")
    v = Value(TensorType(DType.F32, (3,)), name="y")
    product = make_node(all_operations()["*"], [x, w], {})
    total = make_node(all_operations()["+"], [product.results[0], v], {})
    graph = Graph([x], {"x": w, "y": v}, [product, total], {"y": total.results[0]})
    weights = {"x": np.float32([1, 2, 3]), "y": np.float32([1, 1, 1])}
    model = build_model(graph, weights.__getitem__, BuildOptions())
    feeds = {"x": np.float32([[2, 3, 4]])}
    found = run_onnx(model, feeds)
    np.testing.assert_array_equal(found["y"], evaluate(graph, feeds, weights)["y"])


def test_an_output_with_the_name_of_an_input() -> None:
    graph = unary("exp")
    graph.outputs = {"x": graph.outputs["y"]}
    with pytest.raises(SexpgpuError) as caught:
        build_model(graph, {}.__getitem__, BuildOptions())
    assert caught.value.code == "E-EXPORT-007"
    assert "`x`" in caught.value.message


def test_outputs_that_are_inputs_weights_and_each_other() -> None:
    graph, array = weighted(DType.F32)
    (product,) = graph.outputs.values()
    graph.outputs = {
        "a": product,
        "b": product,
        "c": graph.inputs[0],
        "d": graph.weights["layer.w"],
        "e": graph.inputs[0],
    }
    model = build_model(graph, lambda path: array, BuildOptions())
    x = np.float32([[2, 3, 4]])
    found = run_onnx(model, {"x": x})
    assert list(found) == ["a", "b", "c", "d", "e"]
    assert found["a"].tolist() == found["b"].tolist() == [[2, 6, 12]]
    assert found["c"].tolist() == found["e"].tolist() == x.tolist()
    assert found["d"].tolist() == array.tolist()


def test_an_operation_without_a_form_is_refused() -> None:
    x = Value(TensorType(DType.F32, (3,)), name="x")
    full = make_node(
        all_operations()["full"], [], {"shape": (Batch(), 3), "value": 1.0, "dtype": DType.F32}
    )
    graph = Graph([x], {}, [full], {"y": full.results[0]})
    with pytest.raises(SexpgpuError) as caught:
        build_model(graph, {}.__getitem__, BuildOptions())
    assert caught.value.code == "E-ONNX-001"


def test_the_same_graph_gives_the_same_bytes() -> None:
    graph, weights = traced(GPT)
    first, second = (
        build_model(graph, weights.__getitem__, BuildOptions(metadata={"k": "v"})) for _ in "ab"
    )
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )
