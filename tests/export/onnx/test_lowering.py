"""What operations write their ONNX form into."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from sexpgpu.export.graph.graph import Node, Position, Value
from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.onnx.lowering import ONNX_DTYPES, Lowering
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError


def node(scope: str = "blocks.0.mlp", position: Position | None = None) -> Node:
    type = TensorType(DType.F32, (Batch(), 4))
    return Node(
        all_operations()["gelu"],
        [Value(type)],
        {"tanh": False},
        [type],
        position=position,
        scope=scope,
    )


def values(onnx: Lowering) -> dict[str, list[int]]:
    """The initializers that are lists of whole numbers."""
    return {t.name: numpy_helper.to_array(t).tolist() for t in onnx.initializers}


# Nodes


def test_nodes_are_named_after_part_and_operation_and_say_their_line() -> None:
    lowering = Lowering()
    lowering.begin(node(position=Position("gpt.sx", 7, 3)))
    first, second = lowering.add("Erf", "x"), lowering.add("Erf", "x")
    assert [n.name for n in lowering.nodes] == [
        "blocks.0.mlp/gelu/Erf",
        "blocks.0.mlp/gelu/Erf_1",
    ]
    assert {n.doc_string for n in lowering.nodes} == {"gpt.sx:7:3"}
    assert first != second
    lowering.begin(node(scope=""))
    lowering.add("Erf", "x")
    assert (lowering.nodes[-1].name, lowering.nodes[-1].doc_string) == ("gelu/Erf", "")


def test_several_outputs_have_names_of_their_own() -> None:
    lowering = Lowering()
    made = lowering.add("Split", "x", outputs=3, axis=1)
    assert len(set(made)) == 3
    assert list(lowering.nodes[0].output) == made
    assert isinstance(lowering.add("TopK", "x", "k", outputs=1), list)


def test_optional_inputs_and_attributes_are_left_out() -> None:
    lowering = Lowering()
    lowering.add("Clip", "x", "", "high")
    lowering.add("Clip", "x", "low", "")
    lowering.add("Resize", "x", "", "", axis=None, mode="nearest")
    assert [list(n.input) for n in lowering.nodes] == [["x", "", "high"], ["x", "low"], ["x"]]
    assert [a.name for a in lowering.nodes[2].attribute] == ["mode"]


@pytest.mark.parametrize("dtype", DType)
def test_a_cast_says_its_dtype(dtype: DType) -> None:
    lowering = Lowering()
    lowering.cast("x", dtype)
    assert lowering.nodes[0].attribute[0].i == ONNX_DTYPES[dtype]


# Constants


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0, 3)])
def test_constants_keep_dtype_and_shape(dtype: DType, shape: tuple[int, ...]) -> None:
    lowering = Lowering()
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype.numpy)
    lowering.constant(array)
    (proto,) = lowering.initializers
    assert (proto.data_type, tuple(proto.dims)) == (ONNX_DTYPES[dtype], shape)
    assert proto.raw_data == array.tobytes(), "value lists are misread by some runtimes"
    onnx.checker.check_tensor(proto)


def test_equal_constants_are_one() -> None:
    lowering = Lowering()
    one = lowering.scalar(1.0, DType.F32)
    assert lowering.constant(np.float32(1)) == one
    others = [
        lowering.scalar(1.0, DType.F64),
        lowering.constant(np.float32([1])),
        lowering.scalar(-0.0, DType.F32),
        lowering.scalar(0.0, DType.F32),
        lowering.constant(np.int32(1065353216)),  # the bits of 1.0
    ]
    assert len({one, *others}) == 6
    assert len(lowering.initializers) == 6


def test_a_body_has_its_small_constants_itself() -> None:
    # Shape inference sees no constants from outside, and IREE knows a body's shapes by it.
    lowering = Lowering()
    outside = lowering.ints([1])
    for _ in range(2):
        with lowering.body() as nodes:
            names = {lowering.ints([1]), lowering.ints([1]), lowering.ints([0])}
            large = lowering.constant(np.zeros(65, np.float32))
            with lowering.body() as inner:
                assert lowering.ints([1]) not in {*names, outside}
            assert len(inner) == 1
            assert lowering.shared(("axis",), lambda: lowering.ints([1])) == outside
        assert {node.output[0] for node in nodes} == names
        assert [node.op_type for node in nodes] == ["Constant"] * 2
        assert outside not in names
    assert lowering.ints([1]) == outside
    assert [t.name for t in lowering.initializers] == [outside, large]


def test_an_array_that_is_not_contiguous() -> None:
    lowering = Lowering()
    lowering.constant(np.arange(6, dtype=np.int64).reshape(2, 3).T)
    assert numpy_helper.to_array(lowering.initializers[0]).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_bf16_scalars_are_rounded() -> None:
    lowering = Lowering()
    lowering.scalar(1.01, DType.BF16)
    (proto,) = lowering.initializers
    assert np.frombuffer(proto.raw_data, ml_dtypes.bfloat16)[0] == ml_dtypes.bfloat16(1.01)


def test_ints_may_be_none() -> None:
    lowering = Lowering()
    lowering.ints([])
    assert list(lowering.initializers[0].dims) == [0]


# Shapes


def test_a_shape_without_the_batch_is_a_constant() -> None:
    lowering = Lowering()
    name = lowering.shape([2, 3])
    assert values(lowering) == {name: [2, 3]}
    assert lowering.nodes == lowering.prologue == []


def test_the_batch_is_read_once_and_before_all_else() -> None:
    lowering = Lowering(batch_source=("x", 1, 1))
    with lowering.body() as inside:
        lowering.shape([Batch(), 2])
    lowering.shape([3, Batch(2), 4, 5])
    assert [n.op_type for n in lowering.prologue] == ["Shape", "Slice"]
    assert [n.op_type for n in inside] == ["Constant", "Concat"]
    assert [n.op_type for n in lowering.nodes] == ["Mul", "Concat"]
    assert lowering.batch() == lowering.batch()


def test_the_batch_of_an_input_that_has_a_multiple_of_it() -> None:
    lowering = Lowering(batch_source=("x", 0, 6))
    lowering.batch()
    assert [n.op_type for n in lowering.prologue] == ["Shape", "Slice", "Div"]


def test_the_batch_of_a_model_without_one() -> None:
    with pytest.raises(SexpgpuError) as caught:
        Lowering().batch()
    assert caught.value.code == "E-ONNX-001"
    assert "--batch" in (caught.value.help or "")


@pytest.mark.parametrize(
    ("shape", "target", "allowzero"),
    [
        ([2, 3], [2, 3], False),
        ([Batch(), 3], [-1, 3], False),
        ([2, Batch(4)], [2, -1], False),
        ([0, 3], [0, 3], True),
    ],
)
def test_reshape(shape: list[int | Batch], target: list[int], allowzero: bool) -> None:
    lowering = Lowering(batch_source=("x", 0, 1))
    lowering.reshape("x", shape)
    (made,) = lowering.nodes
    assert values(lowering)[made.input[1]] == target
    assert bool(made.attribute) is allowzero


def test_reshape_to_what_minus_one_cannot_say() -> None:
    for shape in ([Batch(), 0], [Batch(), Batch()]):
        lowering = Lowering(batch_source=("x", 0, 1))
        lowering.reshape("x", shape)
        assert [n.op_type for n in lowering.nodes] == ["Concat", "Reshape"]


# Values that are shared, and bodies


def test_a_shared_value_is_written_once() -> None:
    lowering = Lowering()
    lowering.begin(node())
    made = [lowering.shared(("mask", 3), lambda: lowering.add("Neg", "x")) for _ in range(2)]
    other = lowering.shared(("mask", 4), lambda: lowering.add("Neg", "x"))
    assert made[0] == made[1] != other
    assert [n.name for n in lowering.prologue] == ["mask/Neg", "mask/Neg_1"]
    assert lowering.nodes == []
    lowering.add("Exp", "x")
    assert lowering.nodes[0].name == "blocks.0.mlp/gelu/Exp", "the label comes back"


def test_what_is_shared_is_given_back_even_after_an_error() -> None:
    lowering = Lowering()

    def fail() -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lowering.shared(("x",), fail)
    lowering.add("Exp", "x")
    assert len(lowering.nodes) == 1


def test_a_body_has_nodes_of_its_own() -> None:
    lowering = Lowering()
    lowering.begin(node())
    with lowering.body() as nodes:
        lowering.begin(node(scope="inner"))
        lowering.add("Neg", "x")
    lowering.add("Exp", "x")
    assert [n.op_type for n in nodes] == ["Neg"]
    assert [n.name for n in lowering.nodes] == ["blocks.0.mlp/gelu/Exp"]


# Outputs


def test_makers_are_renamed_and_readers_follow() -> None:
    lowering = Lowering()
    a = lowering.add("Neg", "x")
    b = lowering.add("Exp", a)
    lowering.name_outputs({"first": a, "second": b})
    assert [list(n.output) for n in lowering.nodes] == [["first"], ["second"]]
    assert list(lowering.nodes[1].input) == ["first"]


def test_bodies_follow_new_names() -> None:
    lowering = Lowering()
    a = lowering.add("Neg", "x")
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", [a, "step"], ["next"])], "body", [], []
    )
    lowering.add("Scan", "x", body=inner)
    lowering.name_outputs({"first": a})
    assert list(lowering.nodes[1].attribute[0].g.node[0].input) == ["first", "step"]


def test_inputs_weights_and_second_names_go_through_identity() -> None:
    lowering = Lowering()
    a = lowering.add("Neg", "x")
    lowering.name_outputs({"one": a, "two": a, "given": "x", "weight": "w"})
    made = {n.output[0]: (n.op_type, list(n.input)) for n in lowering.nodes}
    assert made == {
        "one": ("Neg", ["x"]),
        "two": ("Identity", ["one"]),
        "given": ("Identity", ["x"]),
        "weight": ("Identity", ["w"]),
    }


def test_the_profile_says_what_may_be_fused() -> None:
    assert not Lowering().fused
    assert Lowering(opset=23, profile="fused").fused


def test_every_dtype_has_a_code() -> None:
    assert {*ONNX_DTYPES} == {*DType}
    assert ONNX_DTYPES[DType.BF16] == TensorProto.BFLOAT16
