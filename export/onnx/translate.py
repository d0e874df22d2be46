"""One node of the graph after another into ONNX nodes, bf16 through f32 where runtimes need it."""

from __future__ import annotations

from collections.abc import Sequence

from sexpgpu.export.graph.graph import Node, Value
from sexpgpu.export.graph.types import DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue


def translate_nodes(onnx: Lowering, nodes: Sequence[Node], known: dict[Value, OnnxValue]) -> None:
    """Lowers nodes in order; `known` holds the ONNX values of what they read, and grows."""
    for node in nodes:
        onnx.begin(node)
        inputs = [known[value] for value in node.inputs]
        results = list(node.result_types)
        names = translate_node(onnx, node, inputs, results)
        array = node.attributes["value"] if node.operation.name == "constant" else None
        for value, name in zip(node.results, names, strict=True):
            source = _transposed_matrix(onnx, name, inputs)
            known[value] = OnnxValue(
                name,
                value.type,
                array=array,
                transpose_of=source,
                bounded_below=node.operation.bounded_below,
                never_negative=node.operation.never_negative,
            )


def translate_node(
    onnx: Lowering, node: Node, inputs: list[OnnxValue], results: list[TensorType]
) -> list[str]:
    """The ONNX names of a node's results.

    Runtimes move bf16 but do not compute with it, so that an operation that computes has its
    operands widened to f32, exactly, and its results rounded to bf16.
    """
    operation = node.operation
    types = [value.type for value in inputs] + results
    if operation.moves_data or all(type.dtype is not DType.BF16 for type in types):
        return list(operation.lower(onnx, inputs, node.attributes, results))
    wide = [widen(onnx, value) for value in inputs]
    wide_results = [_widened(type) for type in results]
    names = operation.lower(onnx, wide, node.attributes, wide_results)
    return [
        onnx.cast(name, DType.BF16) if type.dtype is DType.BF16 else name
        for name, type in zip(names, results, strict=True)
    ]


def widen(onnx: Lowering, value: OnnxValue) -> OnnxValue:
    """The value in f32 where it is bf16."""
    if value.dtype is not DType.BF16:
        return value
    source = value.transpose_of
    return OnnxValue(
        onnx.cast(value.name, DType.F32),
        _widened(value.type),
        array=None if value.array is None else value.array.astype(DType.F32.numpy),
        transpose_of=widen(onnx, source) if source else None,
        bounded_below=value.bounded_below,
        never_negative=value.never_negative,
    )


def _transposed_matrix(onnx: Lowering, name: str, inputs: Sequence[OnnxValue]) -> OnnxValue | None:
    """The node's input, where the node's last step was to swap the two axes of that matrix.

    A product that reads the matrix as it is stored leaves the Transpose without a reader, and the
    Transpose of a weight would be a second copy of it in a session's memory.
    """
    made = onnx.nodes[-1] if onnx.nodes else None
    if made is None or made.op_type != "Transpose" or name not in made.output:
        return None
    if [list(attribute.ints) for attribute in made.attribute] != [[1, 0]]:
        return None
    return next((value for value in inputs if value.name == made.input[0]), None)


def _widened(type: TensorType) -> TensorType:
    return type.with_dtype(DType.F32) if type.dtype is DType.BF16 else type
