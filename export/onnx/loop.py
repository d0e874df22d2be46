"""ONNX's Scan: steps along an axis, each of which reads what the one before made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import NodeProto, ValueInfoProto, helper

from sexpgpu.export.graph.types import TensorType
from sexpgpu.export.onnx.lowering import ONNX_DTYPES, Lowering, OnnxValue

#: From the carries and the slices of one step: the next carries, and what is stacked.
Step = Callable[[list[OnnxValue], list[OnnxValue]], tuple[Sequence[str], Sequence[str]]]


def add_scan(
    onnx: Lowering,
    carries: Sequence[OnnxValue],
    sequences: Sequence[OnnxValue],
    step: Step,
    stacked: Sequence[TensorType],
    *,
    axis: int,
    reverse: bool = False,
) -> list[str]:
    """The final carries, then the stacked results, whose types for one step are `stacked`.

    `step` adds the nodes of the body; it may read any value from outside it.  Sequences are sliced,
    and results stacked, along `axis`.  Runtimes need at least one step.
    """
    with onnx.body() as nodes:
        before = [_inside(onnx, "carry", value.type) for value in carries]
        slices = [_inside(onnx, "slice", _without(value.type, axis)) for value in sequences]
        after, made = step(before, slices)
        outputs = _distinct(onnx, nodes, [*after, *made])
    types = [value.type for value in carries] + list(stacked)
    body = helper.make_graph(
        nodes,
        "step",
        [_declare(value.name, value.type) for value in (*before, *slices)],
        [_declare(name, type) for name, type in zip(outputs, types, strict=True)],
    )
    direction = int(reverse)
    return onnx.add(
        "Scan",
        *(value.name for value in (*carries, *sequences)),
        outputs=len(types),
        body=body,
        num_scan_inputs=len(sequences),
        scan_input_axes=[axis] * len(sequences),
        scan_input_directions=[direction] * len(sequences),
        scan_output_axes=[axis] * len(stacked) or None,
        scan_output_directions=[direction] * len(stacked) or None,
    )


def _inside(onnx: Lowering, name: str, type: TensorType) -> OnnxValue:
    return OnnxValue(onnx.names.fresh(name), type)


def _distinct(onnx: Lowering, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[str]:
    """Each output as the result of a node of the body, and no two the same."""
    made = {name for node in nodes for name in node.output}
    found: list[str] = []
    for name in outputs:
        fits = name in made and name not in found
        found.append(name if fits else onnx.add("Identity", name))
    return found


def _declare(name: str, type: TensorType) -> ValueInfoProto:
    """The batch has its name: what is left open here would be unknown to what reads the results."""
    dimensions = [d if isinstance(d, int) else str(d) for d in type.shape]
    return helper.make_tensor_value_info(name, ONNX_DTYPES[type.dtype], dimensions)


def _without(type: TensorType, axis: int) -> TensorType:
    return type.with_shape((*type.shape[:axis], *type.shape[axis + 1 :]))
