"""A whole graph into an ONNX model, its weights as external data or inside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto, helper

from sexpgpu.export.graph.graph import Graph, Value
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType, concrete, elements
from sexpgpu.export.onnx.lowering import ONNX_DTYPES, Lowering, OnnxValue, Profile
from sexpgpu.export.onnx.names import Names
from sexpgpu.export.onnx.order import stand_late
from sexpgpu.export.onnx.prune import prune
from sexpgpu.export.onnx.translate import translate_nodes
from sexpgpu.schemas.errors import SexpgpuError


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """Where a weight's bytes are: a file beside the model, and which of its bytes."""

    location: str
    offset: int
    length: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How the ONNX file is written."""

    opset: int = 18
    profile: Profile = "portable"
    batch: int | None = None
    native_bf16: bool = False
    unroll: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    name: str = "model"


#: Bytes of a weight up to which it is turned for the sake of an output.
_TURNED_BYTES = 2**28

WeightSource = Callable[[str], ExternalTensor | Array]

#: IR version that carries each opset, so that older runtimes are not refused needlessly.
_IR_OF_OPSET = ((18, 8), (20, 9), (22, 10), (23, 11), (24, 12), (25, 13))


def ir_version(opset: int) -> int:
    """The least IR version in which the opset may stand."""
    for newest, version in _IR_OF_OPSET:
        if opset <= newest:
            return version
    return _IR_OF_OPSET[-1][1]


def build_model(graph: Graph, weights: WeightSource, options: BuildOptions) -> onnx.ModelProto:
    """The ONNX model of a graph.

    `weights` gives each weight's place in a file, or its array to be stored inside.  Raises
    E-ONNX-001 where an operation has no form in the profile, and E-EXPORT-007 where an output has
    the name of an input.
    """
    names = Names()
    inputs = {value: names.fresh(value.name) for value in graph.inputs}
    for name in graph.outputs:
        if names.fresh(name) != name:
            raise SexpgpuError(
                "E-EXPORT-007",
                f"the output `{name}` has the name of an input",
                help="give the prediction another key",
            )
    lowering = Lowering(
        opset=options.opset,
        profile=options.profile,
        batch_source=_batch_source(inputs),
        names=names,
        native_bf16=options.native_bf16,
        unroll=options.unroll,
    )
    known = {value: OnnxValue(name, value.type) for value, name in inputs.items()}
    initializers: list[TensorProto] = []
    for path, value in graph.weights.items():
        known[value] = _weight(lowering, path, value, weights(path), initializers)
    casts, lowering.nodes = lowering.nodes, []
    translate_nodes(lowering, graph.nodes, known)
    made = {name: known[value].name for name, value in graph.outputs.items()}
    _multiply_into(lowering, set(made.values()))
    lowering.name_outputs(made)
    ordered = stand_late(casts, lowering.prologue + lowering.nodes)
    outputs = [
        _value_info(name, value.type, options.batch) for name, value in graph.outputs.items()
    ]
    nodes, initializers = prune(ordered, initializers + lowering.initializers, graph.outputs)
    proto = helper.make_graph(
        nodes,
        options.name,
        [_value_info(name, value.type, options.batch) for value, name in inputs.items()],
        outputs,
        initializer=initializers,
    )
    model = helper.make_model(
        proto,
        producer_name="sexpgpu",
        opset_imports=[helper.make_opsetid("", options.opset)],
        ir_version=ir_version(options.opset),
    )
    helper.set_model_props(model, dict(options.metadata))
    return model


def _multiply_into(lowering: Lowering, outputs: Collection[str]) -> None:
    """Makes MatMul of a product by a transposed weight that is an output, or is sliced to be one.

    A runtime copies what is given another shape on its way out, as Gemm's result is: as much as
    50,257 logits of every token.  A MatMul is given its shape at once, and the weight is turned
    when the file is loaded, which a large one is not worth.  A slice is the row of --at, whose bits
    are the window's only by the same product: ONNX Runtime moves a factor into MatMul, and not
    into Gemm.
    """
    sliced = {
        node.input[0]
        for node in lowering.nodes
        if node.op_type == "Slice" and node.output[0] in outputs
    }
    for index, node in enumerate(lowering.nodes):
        name = node.output[0]
        if name not in lowering.by_gemm or not (name in outputs or name in sliced):
            continue
        left, right = lowering.by_gemm[name]
        source = right.transpose_of
        large = elements(right.shape) * right.dtype.itemsize > _TURNED_BYTES
        if source is None or not source.weight or right.dtype is not DType.F32 or large:
            continue
        lowering.nodes[index] = helper.make_node(
            "MatMul",
            [left, right.name],
            [name],
            name=lowering.names.fresh(node.name.removesuffix("/Reshape") + "/MatMul"),
            doc_string=node.doc_string,
        )


def _batch_source(inputs: Mapping[Value, str]) -> tuple[str, int, int] | None:
    for value, name in inputs.items():
        for axis, dimension in enumerate(value.type.shape):
            if isinstance(dimension, Batch):
                return name, axis, dimension.multiple
    return None


def _weight(
    lowering: Lowering,
    path: str,
    value: Value,
    source: ExternalTensor | Array,
    initializers: list[TensorProto],
) -> OnnxValue:
    """The initializer of a weight, and a Cast where it is stored in another dtype."""
    name = lowering.names.fresh(path)
    shape = concrete(value.type.shape, 1)
    if isinstance(source, ExternalTensor):
        stored = source.dtype
        proto = TensorProto(name=name, data_type=ONNX_DTYPES[stored], dims=shape)
        proto.data_location = TensorProto.EXTERNAL
        for key, entry in (
            ("location", source.location),
            ("offset", str(source.offset)),
            ("length", str(source.length)),
        ):
            proto.external_data.add(key=key, value=entry)
    else:
        stored = DType.of(source)
        little = source.astype(source.dtype.newbyteorder("<"), copy=False)
        proto = TensorProto(
            name=name, data_type=ONNX_DTYPES[stored], dims=shape, raw_data=little.tobytes()
        )
    initializers.append(proto)
    if stored is value.type.dtype:
        return OnnxValue(name, value.type, weight=True)
    return OnnxValue(lowering.cast(name, value.type.dtype), value.type)


def _value_info(name: str, type: TensorType, batch: int | None) -> onnx.ValueInfoProto:
    dimensions: Sequence[int | str] = [
        (d.multiple * batch if batch else str(d)) if isinstance(d, Batch) else d for d in type.shape
    ]
    return helper.make_tensor_value_info(name, ONNX_DTYPES[type.dtype], dimensions)
