"""Changes to an ONNX graph that others made: outputs left out, products rounded, axes moved."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from sexpgpu.schemas.errors import SexpgpuError

_PRODUCTS = {"MatMul": 2, "Gemm": 2, "Conv": 2, "ConvTranspose": 2}


def prune(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Keeps only the named outputs and what they need.  Raises E-EXPORT-002."""
    graph = model.graph
    known = [output.name for output in graph.output]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            raise SexpgpuError(
                "E-EXPORT-002",
                f"the file has no output `{name}`",
                expected=", ".join(known),
                help=f"did you mean `{close[0]}`?" if close else None,
            )
    needed = set(names)
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(_reads(node))
            kept.append(node)
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(kept)]
    del graph.node[:]
    graph.node.extend(nodes)
    for field in (graph.output, graph.input, graph.initializer):
        wanted = set(names) if field is graph.output else needed
        stay = [item for item in field if item.name in wanted]
        copies = [type(item).FromString(item.SerializeToString()) for item in stay]
        del field[:]
        field.extend(copies)


def round_products(model: onnx.ModelProto) -> bool:
    """Rounds the f32 operands of products to bf16, and multiplies in f32; whether there are any.

    Raises E-SERVE-004 where the file's operators are older than bf16.
    """
    inferred = onnx.shape_inference.infer_shapes(model)
    rounding = _Rounding()
    rounding.graph(model.graph, inferred.graph, {}, {})
    if rounding.count:
        need_opset(model, 13, "--precision bf16")
    return rounding.count > 0


class _Rounding:
    """Puts pairs of casts before products, in the bodies of control flow too.

    ONNX Runtime folds those of a weight, and computes one for each value.
    """

    def __init__(self) -> None:
        self.count = 0

    def graph(
        self,
        graph: onnx.GraphProto,
        inferred: onnx.GraphProto,
        outer_types: Mapping[str, int],
        outer_rounded: Mapping[str, str],
    ) -> None:
        """Rewrites a graph; what it reads of an outer one has types and casts there."""
        types = {
            **outer_types,
            **{
                value.name: value.type.tensor_type.elem_type
                for value in (*inferred.value_info, *inferred.input, *inferred.output)
            },
            **{tensor.name: tensor.data_type for tensor in graph.initializer},
        }
        rounded = dict(outer_rounded)
        nodes: list[onnx.NodeProto] = []
        for node, known in zip(graph.node, inferred.node, strict=True):
            for attribute, twin in zip(node.attribute, known.attribute, strict=True):
                for body, inner in zip(bodies(attribute), bodies(twin), strict=True):
                    self.graph(body, inner, types, rounded)
            for index in range(_PRODUCTS.get(node.op_type, 0)):
                name = node.input[index]
                if types.get(name) != TensorProto.FLOAT:
                    continue
                if name not in rounded:
                    rounded[name] = self._round(name, nodes)
                node.input[index] = rounded[name]
            nodes.append(node)
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)

    def _round(self, name: str, nodes: list[onnx.NodeProto]) -> str:
        self.count += 1
        half, wide = f"{name}/bf16.{self.count}", f"{name}/rounded.{self.count}"
        nodes.append(helper.make_node("Cast", [name], [half], to=TensorProto.BFLOAT16))
        nodes.append(helper.make_node("Cast", [half], [wide], to=TensorProto.FLOAT))
        return wide


def need_opset(model: onnx.ModelProto, least: int, what: str) -> None:
    """Raises E-SERVE-004 where the file's operators are older."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset < least:
        raise SexpgpuError(
            "E-SERVE-004",
            f"{what} needs operators of opset {least}",
            came=f"opset {opset}",
            help="onnx.version_converter.convert_version writes the file anew",
        )


def bodies(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """The graphs that an attribute of If, Loop or Scan holds."""
    return [attribute.g] if attribute.HasField("g") else list(attribute.graphs)


def add_at(
    model: onnx.ModelProto, outputs: Sequence[onnx.ValueInfoProto]
) -> tuple[onnx.ValueInfoProto, list[onnx.ValueInfoProto], int]:
    """Adds the input `at`, i32 [batch]; every output gives that position of its second axis.

    `outputs` are the file's with their sizes.  Returns the input, the outputs as they are then, and
    the axis's length.  Raises E-EXPORT-003 where an output has no second axis of one known length,
    E-SERVE-004 where the file's operators are too old.
    """
    need_opset(model, 13, "--at")
    graph = model.graph
    length = _second_length(outputs)
    if any(value.name == "at" for value in graph.input):
        raise SexpgpuError("E-EXPORT-003", "the file has an input `at` already")
    batch = outputs[0].type.tensor_type.shape.dim[0]
    size = batch.dim_param or (batch.dim_value if batch.HasField("dim_value") else None)
    at = helper.make_tensor_value_info("at", TensorProto.INT32, [size])
    graph.input.append(at)
    graph.node.append(helper.make_node("Cast", ["at"], ["at/i64"], to=TensorProto.INT64))
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "at/one"))
    graph.node.append(helper.make_node("Unsqueeze", ["at/i64", "at/one"], ["at/column"]))
    shaped = []
    for own, value in zip(graph.output, outputs, strict=True):
        whole, row = f"{own.name}/window", f"{own.name}/row"
        _rename_result(graph, own.name, whole)
        graph.node.append(helper.make_node("GatherND", [whole, "at/column"], [row], batch_dims=1))
        graph.node.append(helper.make_node("Unsqueeze", [row, "at/one"], [own.name]))
        own.type.tensor_type.shape.dim[1].dim_value = 1
        shaped.append(onnx.ValueInfoProto.FromString(value.SerializeToString()))
        shaped[-1].type.tensor_type.shape.dim[1].dim_value = 1
    return at, shaped, length


def _second_length(outputs: Sequence[onnx.ValueInfoProto]) -> int:
    """How many positions the outputs have.  Raises E-EXPORT-003 where that is not one number."""
    lengths = set()
    for output in outputs:
        dimensions = output.type.tensor_type.shape.dim
        if len(dimensions) < 2 or not dimensions[1].HasField("dim_value"):
            raise SexpgpuError(
                "E-EXPORT-003",
                f"the output `{output.name}` has no second axis of a known length",
                help="name the outputs that have one with --output, or fix it with --dim",
            )
        lengths.add(dimensions[1].dim_value)
    if len(lengths) > 1:
        came = ", ".join(str(length) for length in sorted(lengths))
        raise SexpgpuError("E-EXPORT-003", "the outputs' second axes differ in length", came=came)
    return int(lengths.pop())


def move_batch(
    model: onnx.ModelProto, name: str, axis: int, record: tuple[int, ...]
) -> tuple[int, ...]:
    """Puts the batch of an input or output first, so that records lie one after another.

    Returns the shape of one record as the graph then has it; its bytes are those of `record`.
    """
    graph = model.graph
    rank = len(record)
    to_front = [axis, *(i for i in range(rank) if i != axis)]
    back = [to_front.index(i) for i in range(rank)]
    inner = f"{name}/batch_{axis}"
    for value in graph.input:
        if value.name == name:
            for node in graph.node:
                _rename_reads(node, name, inner)
            graph.node.insert(0, helper.make_node("Transpose", [name], [inner], perm=back))
            _permute_shape(value, to_front)
    for value in graph.output:
        if value.name == name:
            _rename_result(graph, name, inner)
            graph.node.append(helper.make_node("Transpose", [inner], [name], perm=to_front))
            _permute_shape(value, to_front)
    return tuple(record[i] for i in to_front)


def _permute_shape(value: onnx.ValueInfoProto, order: Sequence[int]) -> None:
    dimensions = value.type.tensor_type.shape.dim
    copies = [
        onnx.TensorShapeProto.Dimension.FromString(dimensions[i].SerializeToString()) for i in order
    ]
    del dimensions[:]
    dimensions.extend(copies)


def _rename_result(graph: onnx.GraphProto, name: str, new: str) -> None:
    """The value `name` is called `new` inside the graph, wherever it is made and read."""
    for node in graph.node:
        for index, output in enumerate(node.output):
            if output == name:
                node.output[index] = new
        _rename_reads(node, name, new)


def _rename_reads(node: onnx.NodeProto, name: str, new: str) -> None:
    for index, read in enumerate(node.input):
        if read == name:
            node.input[index] = new
    for attribute in node.attribute:
        for body in bodies(attribute):
            for inner in body.node:
                _rename_reads(inner, name, new)


def _reads(node: onnx.NodeProto) -> set[str]:
    """Every value that a node reads, its bodies' included."""
    found = set(node.input)
    for attribute in node.attribute:
        for body in bodies(attribute):
            for inner in body.node:
                found |= _reads(inner)
            found.update(output.name for output in body.output)
    return found - {""}
