"""What an operation's `lower` writes into: nodes, constants and names of one ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import onnx
from onnx import TensorProto, helper

from sexpgpu.export.graph.graph import Node
from sexpgpu.export.graph.types import Array, Batch, Dimension, DType, TensorType
from sexpgpu.export.onnx.names import Names
from sexpgpu.schemas.errors import SexpgpuError

ONNX_DTYPES: dict[DType, int] = {
    DType.F32: TensorProto.FLOAT,
    DType.F64: TensorProto.DOUBLE,
    DType.BF16: TensorProto.BFLOAT16,
    DType.I32: TensorProto.INT32,
    DType.I64: TensorProto.INT64,
    DType.BOOL: TensorProto.BOOL,
}

Profile = Literal["portable", "fused"]

#: Elements of a constant up to which a body has its own.
_SMALL = 64


@dataclass(frozen=True, slots=True)
class OnnxValue:
    """The ONNX name of a tensor and its type in the graph.

    `array` is the value itself where it is a small constant, `weight` whether it is an
    initializer that holds a weight as the model has it.  `transpose_of` is the matrix that this
    one is the transpose of, where that is known: a product can read it as it is stored.
    `bounded_below` says that no element is -inf, `never_negative` that none is below 0.
    """

    name: str
    type: TensorType
    array: Array | None = None
    weight: bool = False
    transpose_of: OnnxValue | None = None
    bounded_below: bool = False
    never_negative: bool = False

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dimension, ...]:
        return self.type.shape


class Lowering:
    """An ONNX graph while it is being written.

    Nodes are named after the model part and the operation that they come from, and carry its
    source position.  `batch_source` names a graph input and its axis that the batch runs along.
    With `unroll` the steps of loops are written one after another.  `by_gemm` are the results that
    are Gemm's in another shape, with the operands of the MatMul that they could be.
    """

    def __init__(
        self,
        *,
        opset: int = 18,
        profile: Profile = "portable",
        batch_source: tuple[str, int, int] | None = None,
        names: Names | None = None,
        native_bf16: bool = False,
        unroll: bool = False,
    ) -> None:
        self.opset = opset
        self.profile = profile
        self.native_bf16 = native_bf16
        self.unroll = unroll
        self.names = names or Names()
        self.initializers: list[onnx.TensorProto] = []
        self.prologue: list[onnx.NodeProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.by_gemm: dict[str, tuple[str, OnnxValue]] = {}
        self._batch_source = batch_source
        self._shared: dict[tuple[object, ...], str] = {}
        # Of the graph, then of each body that is being written.
        self._constants: list[dict[tuple[str, tuple[int, ...], bytes], str]] = [{}]
        self._label = ""
        self._doc = ""

    @property
    def fused(self) -> bool:
        """Whether operators of opset 23 that fuse several steps may be used."""
        return self.profile == "fused"

    def begin(self, node: Node) -> None:
        """What follows comes from this node of the graph."""
        name = node.operation.name
        self._label = f"{node.scope}/{name}" if node.scope else name
        self._doc = str(node.position) if node.position else ""

    @overload
    def add(
        self, op_type: str, *inputs: str, outputs: None = None, domain: str = "", **attributes: Any
    ) -> str: ...
    @overload
    def add(
        self, op_type: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]: ...
    def add(
        self,
        op_type: str,
        *inputs: str,
        outputs: int | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str | list[str]:
        """Adds a node; its output's name, or a list of names when `outputs` says how many.

        An empty input name leaves an optional input out; attributes that are None are left out.
        """
        while inputs and inputs[-1] == "":
            inputs = inputs[:-1]
        label = self.names.fresh(f"{self._label}/{op_type}")
        count = 1 if outputs is None else outputs
        made = [self.names.fresh(f"{label}.{i}" if i else f"{label}.out") for i in range(count)]
        given = {name: value for name, value in attributes.items() if value is not None}
        proto = helper.make_node(
            op_type, list(inputs), made, name=label, domain=domain, doc_string=self._doc, **given
        )
        self.nodes.append(proto)
        return made[0] if outputs is None else made

    def constant(self, array: Array) -> str:
        """An initializer of this value; equal ones are shared.

        In a body a small one is a node of the body: shape inference does not look for axes and
        sizes outside of it, and IREE has the shapes of a body from there.
        """
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        dtype = DType.of(array)
        key = (dtype.value, array.shape, array.tobytes())
        inside = len(self._constants) > 1 and array.size <= _SMALL
        constants = self._constants[-1 if inside else 0]
        if key not in constants:
            count = sum(len(each) for each in self._constants)
            name = self.names.fresh(f"constant_{count}")
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            proto = onnx.TensorProto(
                name=name, data_type=ONNX_DTYPES[dtype], dims=array.shape, raw_data=little.tobytes()
            )
            if inside:
                self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=proto))
            else:
                self.initializers.append(proto)
            constants[key] = name
        return constants[key]

    def ints(self, values: Sequence[int]) -> str:
        """A 1-D i64 constant: axes, shapes, bounds."""
        return self.constant(np.asarray(values, np.int64).reshape(len(values)))

    def scalar(self, value: float, dtype: DType) -> str:
        """A constant of rank 0."""
        return self.constant(np.asarray(value).astype(dtype.numpy))

    def cast(self, name: str, dtype: DType) -> str:
        """A Cast, always exact round-to-nearest-even from wider floats."""
        return self.add("Cast", name, to=ONNX_DTYPES[dtype])

    def shared(self, key: tuple[object, ...], write: Callable[[], str]) -> str:
        """The value that `write` adds: once for the graph, before all else and in no body.

        It may read inputs and constants alone.
        """
        if key not in self._shared:
            outer = self.nodes, self._label, self._doc, self._constants
            self.nodes, self._label, self._doc = self.prologue, str(key[0]), ""
            self._constants = self._constants[:1]
            try:
                self._shared[key] = write()
            finally:
                self.nodes, self._label, self._doc, self._constants = outer
        return self._shared[key]

    def batch(self) -> str:
        """A 1-D i64 tensor of one element: how many records the call has."""
        return self.shared(("batch",), self._write_batch)

    def _write_batch(self) -> str:
        if self._batch_source is None:
            raise SexpgpuError(
                "E-ONNX-001",
                "a shape depends on the batch, and no input of the model has one",
                help="give a fixed size with --batch",
            )
        name, axis, multiple = self._batch_source
        dimensions = self.add("Shape", name)
        size = self.add("Slice", dimensions, self.ints([axis]), self.ints([axis + 1]))
        return size if multiple == 1 else self.add("Div", size, self.ints([multiple]))

    def shape(self, dimensions: Sequence[Dimension]) -> str:
        """A 1-D i64 tensor that holds a shape, computed where the batch is in it."""
        if not any(isinstance(d, Batch) for d in dimensions):
            return self.ints([int(d) for d in dimensions if not isinstance(d, Batch)])
        parts: list[str] = []
        known: list[int] = []
        for dimension in dimensions:
            if not isinstance(dimension, Batch):
                known.append(dimension)
                continue
            if known:
                parts.append(self.ints(known))
                known = []
            size = self.batch()
            if dimension.multiple != 1:
                size = self.add("Mul", size, self.ints([dimension.multiple]))
            parts.append(size)
        if known:
            parts.append(self.ints(known))
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=0)

    def reshape(self, name: str, dimensions: Sequence[Dimension]) -> str:
        """A Reshape; one unknown dimension costs nothing to find."""
        unknown = [d for d in dimensions if isinstance(d, Batch)]
        empty = any(d == 0 for d in dimensions)
        if len(unknown) == 1 and not empty:
            target = self.ints([-1 if isinstance(d, Batch) else d for d in dimensions])
            return self.add("Reshape", name, target)
        return self.add("Reshape", name, self.shape(dimensions), allowzero=1 if empty else None)

    def name_outputs(self, outputs: Mapping[str, str]) -> None:
        """Gives results the graph's output names.

        The node that makes a value is renamed to make the output; an input, a weight, a constant
        or a second name for one value goes through Identity.
        """
        makers = {name: node for node in self.nodes for name in node.output}
        self._label, self._doc = "outputs", ""
        renamed: dict[str, str] = {}
        for output, name in outputs.items():
            if name in renamed or name not in makers:
                source = renamed.get(name, name)
                self.add("Identity", source)
                self.nodes[-1].output[0] = output
                continue
            renamed[name] = output
            node = makers[name]
            node.output[list(node.output).index(name)] = output
        for node in self.nodes:
            _rename_inputs(node, renamed)

    @contextmanager
    def body(self) -> Iterator[list[onnx.NodeProto]]:
        """Nodes added inside go into the list that is yielded: the body of a Scan."""
        outer, self.nodes = self.nodes, []
        label, doc = self._label, self._doc
        self._constants.append({})
        try:
            yield self.nodes
        finally:
            self._constants.pop()
            self.nodes, self._label, self._doc = outer, label, doc


def _rename_inputs(node: onnx.NodeProto, renamed: Mapping[str, str]) -> None:
    """Follows new names in what a node reads, bodies included, which may read outer values."""
    for index, name in enumerate(node.input):
        if name in renamed:
            node.input[index] = renamed[name]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                _rename_inputs(inner, renamed)
