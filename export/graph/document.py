"""A graph as model.json, and back; reading checks every type, the order and every shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sexpgpu.export.graph.attributes import (
    Malformed,
    read_attribute,
    read_dimension,
    write_attribute,
    write_dimension,
)
from sexpgpu.export.graph.graph import Graph, Node, Position, Value, make_node
from sexpgpu.export.graph.types import DType, TensorType, elements
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas import model as schema
from sexpgpu.schemas.document import decode, read_document
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.precision import Precision

NODE_LIMIT = 200_000
WEIGHT_LIMIT = 2**38


@dataclass(frozen=True, slots=True)
class FrozenSource:
    """The file that a frozen weight is read from."""

    file: str
    key: str
    sha256: str


@dataclass(slots=True)
class ModelFile:
    """What model.json says: a graph, and where it comes from."""

    graph: Graph
    precision: Precision = "f32"
    checkpoint: str | None = None
    step: int | None = None
    slug: str | None = None
    frozen: dict[str, FrozenSource] = field(default_factory=dict)


def write_model(model: ModelFile, producer: str) -> bytes:
    """model.json; the same model gives the same bytes."""
    graph = model.graph
    names = _value_names(graph)
    document = schema.Model(
        producer=producer,
        checkpoint=model.checkpoint,
        step=model.step,
        slug=model.slug,
        precision=model.precision,
        weights={
            path: _write_weight(value, model.frozen.get(path))
            for path, value in graph.weights.items()
        },
        inputs=_write_inputs(graph),
        outputs=_write_outputs(graph, names),
        nodes=_write_nodes(graph, names),
    )
    return _lay_out(document)


def read_model(data: bytes, place: str) -> ModelFile:
    """The model that the bytes of the file `place` describe.

    Raises E-JSON-001 where they break the format, E-JSON-002 for a newer version, E-GRAPH-001 where
    they describe no graph that can run.
    """
    document = read_document(data, schema.Model, place, version=schema.VERSION)
    reader = _Reader(place)
    weights = {
        path: reader.weight(path, entry, f"$.weights.{path}")
        for path, entry in document.weights.items()
    }
    graph = reader.graph(document.inputs, weights, document.nodes, document.outputs, "$")
    frozen = {
        path: FrozenSource(entry.file, entry.key or path, entry.sha256 or "")
        for path, entry in document.weights.items()
        if entry.file is not None
    }
    return ModelFile(
        graph, document.precision, document.checkpoint, document.step, document.slug, frozen
    )


def _lay_out(document: schema.Model) -> bytes:
    """The document as JSON with a line for each weight, input, output and node."""
    fields = []
    for name, value in msgspec.structs.asdict(document).items():
        if isinstance(value, list) and value:
            inner = b",\n  ".join(msgspec.json.encode(item) for item in value)
            text = b"[\n  " + inner + b"\n ]"
        elif isinstance(value, dict) and value:
            items = (
                msgspec.json.encode(key) + b": " + msgspec.json.encode(item)
                for key, item in value.items()
            )
            text = b"{\n  " + b",\n  ".join(items) + b"\n }"
        else:
            text = msgspec.json.encode(value)
        fields.append(msgspec.json.encode(name) + b": " + text)
    return b"{\n " + b",\n ".join(fields) + b"\n}\n"


def _value_names(graph: Graph) -> dict[Value, str]:
    names = {value: f"@{value.name}" for value in graph.inputs}
    names |= {value: f"${path}" for path, value in graph.weights.items()}
    for number, node in enumerate(graph.nodes):
        for index, value in enumerate(node.results):
            names[value] = f"n{number}:{index}" if index else f"n{number}"
    return names


def _write_weight(value: Value, frozen: FrozenSource | None) -> schema.Weight:
    shape = [d for d in value.type.shape if isinstance(d, int)]
    entry = schema.Weight(shape=shape, dtype=value.type.dtype.value)
    if frozen is not None:
        entry.file, entry.key, entry.sha256 = frozen.file, frozen.key, frozen.sha256
    return entry


def _write_inputs(graph: Graph) -> list[schema.Input]:
    return [
        schema.Input(name=value.name, shape=_shape(value.type), dtype=value.type.dtype.value)
        for value in graph.inputs
    ]


def _write_outputs(graph: Graph, names: Mapping[Value, str]) -> list[schema.Output]:
    return [
        schema.Output(
            name=name, shape=_shape(value.type), dtype=value.type.dtype.value, value=names[value]
        )
        for name, value in graph.outputs.items()
    ]


def _write_nodes(graph: Graph, names: Mapping[Value, str]) -> list[schema.Node]:
    nodes = []
    for number, node in enumerate(graph.nodes):
        first, *others = node.result_types
        nodes.append(
            schema.Node(
                id=f"n{number}",
                op=node.operation.name,
                inputs=[names[value] for value in node.inputs],
                shape=_shape(first),
                dtype=first.dtype.value,
                more=[schema.Tensor(shape=_shape(t), dtype=t.dtype.value) for t in others],
                attributes={
                    attribute.name: write_attribute(
                        attribute, node.attributes[attribute.name], _write_body
                    )
                    for attribute in node.operation.signature.attributes
                },
                source=str(node.position) if node.position else "",
                scope=node.scope,
            )
        )
    return nodes


def _write_body(graph: Graph) -> Any:
    names = _value_names(graph)
    body = schema.Body(
        inputs=_write_inputs(graph),
        nodes=_write_nodes(graph, names),
        outputs=_write_outputs(graph, names),
    )
    return msgspec.to_builtins(body)


def _shape(type: TensorType) -> list[int | str]:
    return [write_dimension(dimension) for dimension in type.shape]


class _Reader:
    """Reads the graphs of one document; `place` is its file, for errors."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.nodes = 0

    def fail(
        self, path: str, message: str, came: str | None = None, expected: str | None = None
    ) -> SexpgpuError:
        place = f"{self.place} {path}"
        return SexpgpuError("E-GRAPH-001", message, place=place, came=came, expected=expected)

    def weight(self, path: str, entry: schema.Weight, where: str) -> Value:
        type = TensorType(DType(entry.dtype), tuple(entry.shape))
        if not path or elements(type.shape) > WEIGHT_LIMIT:
            raise self.fail(where, "no weight can be so large or have no path", came=str(type))
        if (entry.file is None) != (entry.sha256 is None):
            raise self.fail(where, "a frozen weight names its file, key and SHA-256 together")
        return Value(type, name=path)

    def graph(
        self,
        inputs: list[schema.Input],
        weights: dict[str, Value],
        nodes: list[schema.Node],
        outputs: list[schema.Output],
        path: str,
    ) -> Graph:
        self.nodes += len(nodes)
        if self.nodes > NODE_LIMIT:
            raise self.fail(path, f"a graph may have {NODE_LIMIT:,} nodes", came=f"{self.nodes:,}")
        graph = Graph(weights=weights)
        known = {f"${name}": value for name, value in weights.items()}
        for index, entry in enumerate(inputs):
            where = f"{path}.inputs[{index}]"
            type = self.type(entry.shape, entry.dtype, where)
            if elements(type.shape) > WEIGHT_LIMIT:
                raise self.fail(where, "an input is too large", came=str(type))
            if f"@{entry.name}" in known:
                raise self.fail(where, f"the input `{entry.name}` stands twice")
            known[f"@{entry.name}"] = value = Value(type, name=entry.name)
            graph.inputs.append(value)
        for index, item in enumerate(nodes):
            where = f"{path}.nodes[{index}]"
            node = self.node(item, known, where)
            if item.id in known:
                raise self.fail(f"{where}.id", f"the id {item.id} stands twice")
            graph.nodes.append(node)
            for number, value in enumerate(node.results):
                known[f"{item.id}:{number}" if number else item.id] = value
        for index, output in enumerate(outputs):
            where = f"{path}.outputs[{index}]"
            value = self.value(output.value, known, f"{where}.value")
            self.same(value.type, self.type(output.shape, output.dtype, where), where)
            if output.name in graph.outputs:
                raise self.fail(where, f"the output `{output.name}` stands twice")
            graph.outputs[output.name] = value
        return graph

    def node(self, entry: schema.Node, known: Mapping[str, Value], where: str) -> Node:
        operation = all_operations().get(entry.op)
        if operation is None:
            raise self.fail(f"{where}.op", f"there is no operation `{entry.op}`")
        inputs = [
            self.value(name, known, f"{where}.inputs[{index}]")
            for index, name in enumerate(entry.inputs)
        ]
        attributes: dict[str, Any] = {}
        for attribute in operation.signature.attributes:
            at = f"{where}.attributes.{attribute.name}"
            if attribute.name not in entry.attributes:
                if not attribute.required:  # it is younger than the file, which means the default
                    attributes[attribute.name] = attribute.default
                    continue
                raise self.fail(at, f"`{entry.op}` needs the attribute `{attribute.name}`")
            try:
                attributes[attribute.name] = read_attribute(
                    attribute,
                    entry.attributes[attribute.name],
                    lambda data, at=at: self.body(data, at),  # type: ignore[misc]
                )
            except Malformed as error:
                raise self.fail(
                    at, "the attribute is not of its kind", expected=str(error)
                ) from None
        for extra in entry.attributes.keys() - attributes.keys():
            raise self.fail(f"{where}.attributes.{extra}", f"`{entry.op}` has no such attribute")
        try:
            node = make_node(
                operation,
                inputs,
                attributes,
                position=_position(entry.source),
                scope=entry.scope,
            )
        except SexpgpuError as error:
            raise self.fail(
                where, error.message, came=error.came, expected=error.expected
            ) from None
        declared: list[schema.Node | schema.Tensor] = [entry, *entry.more]
        if len(declared) != len(node.results):
            raise self.fail(where, f"`{entry.op}` has {len(node.results)} results here")
        for result, kind in zip(node.results, declared, strict=True):
            self.same(result.type, self.type(kind.shape, kind.dtype, where), where)
        return node

    def body(self, data: Any, where: str) -> Graph:
        body = decode(msgspec.json.encode(data), schema.Body, self.place, where)
        return self.graph(body.inputs, {}, body.nodes, body.outputs, where)

    def value(self, name: str, known: Mapping[str, Value], where: str) -> Value:
        if name not in known:
            raise self.fail(where, f"`{name}` is made by nothing before this place")
        return known[name]

    def type(self, shape: list[Any], dtype: str, where: str) -> TensorType:
        try:
            return TensorType(DType(dtype), tuple(read_dimension(d) for d in shape))
        except Malformed as error:
            raise self.fail(f"{where}.shape", "not a shape", expected=str(error)) from None

    def same(self, inferred: TensorType, declared: TensorType, where: str) -> None:
        if inferred != declared:
            raise self.fail(
                where,
                "the type is not that which its inputs give",
                came=str(declared),
                expected=str(inferred),
            )


def _position(text: str) -> Position | None:
    file, _, place = text.rpartition(":")
    file, _, line = file.rpartition(":")
    if not file or not line.isdecimal() or not place.isdecimal() or len(line + place) > 18:
        return None
    return Position(file, int(line), int(place))
