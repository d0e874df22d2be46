"""What a checkpoint, an export or a file holds, as `inspect` shows it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from sexpgpu.export.graph.document import ModelFile, read_model
from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import TensorType
from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.export.storage.sources import ENDINGS, open_source
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import MappedTensors

_ONNX_LIMIT = 2**31


@dataclass
class Tensor:
    """A tensor as it is listed: a name, a dtype and a shape, whose dimensions may have names."""

    name: str
    dtype: str
    shape: list[int | str]

    @property
    def elements(self) -> int:
        return math.prod(d for d in self.shape if isinstance(d, int))


@dataclass
class Inspection:
    """What was found; what a kind of file does not have is empty."""

    kind: str
    place: str
    facts: dict[str, Any] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    operators: dict[str, int] = field(default_factory=dict)
    weights: list[Tensor] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)


def inspect(where: str) -> Inspection:
    """Looks at a path or location.

    Raises E-INSPECT-001 where it holds nothing that is known, E-FILE-001 where nothing is there or
    it cannot be read, and what reading what it is raises.
    """
    path = Path(where)
    try:
        if path.is_file():
            return _inspect_file(path)
        if (path / "model.json").is_file() and not (path / "checkpoint.json").exists():
            return _inspect_export(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SexpgpuError(
            "E-FILE-001", f"cannot read the file: {reason}", place=str(error.filename or path)
        ) from None
    if not path.exists() and "://" not in where:
        raise SexpgpuError("E-FILE-001", f"there is nothing at {where}")
    try:
        return _inspect_checkpoint(where)
    except SexpgpuError as error:
        if error.code != "E-CKPT-001":
            raise
        raise SexpgpuError(
            "E-INSPECT-001",
            f"{where} holds nothing that can be shown",
            expected="a checkpoint, a directory that export wrote, model.json, an ONNX file, or "
            f"weights ({', '.join(ENDINGS)})",
            notes=[error.message],
        ) from None


def _inspect_file(path: Path) -> Inspection:
    suffix = path.suffix.lower()
    if path.name.lower().endswith(ENDINGS):
        found = _inspect_weights(path)
    elif suffix == ".json":
        found = Inspection("model.json", str(path))
        _describe_model(found, read_model(path.read_bytes(), str(path)))
    elif suffix == ".onnx":
        found = _inspect_onnx(path)
    else:
        raise SexpgpuError(
            "E-INSPECT-001",
            f"{path} is of no kind that can be shown",
            expected="model.json, .onnx, " + ", ".join(ENDINGS),
        )
    found.files = {path.name: path.stat().st_size}
    return found


def _inspect_export(path: Path) -> Inspection:
    found = Inspection("export", str(path))
    model = read_model((path / "model.json").read_bytes(), str(path / "model.json"))
    _describe_model(found, model)
    found.files = {p.name: p.stat().st_size for p in sorted(path.iterdir()) if p.is_file()}
    weights = path / "params.safetensors"
    if weights.is_file():
        with MappedTensors(weights) as tensors:
            stored = Counter(entry.dtype for entry in tensors.header.tensors.values())
            found.facts["stored as"] = ", ".join(f"{n} {dtype}" for dtype, n in stored.items())
    file = path / "model.onnx"
    if file.is_file():
        inner = _inspect_onnx(file)
        found.operators = inner.operators
        found.facts |= {key: inner.facts[key] for key in ("opset", "ir version")}
    return found


def _inspect_checkpoint(where: str) -> Inspection:
    stored = open_checkpoint(where)
    document = stored.document
    found = Inspection("checkpoint", str(stored.location))
    found.facts = {
        "step": document.step,
        "slug": document.slug,
        "variant": document.variant,
        "precision": document.precision,
        "producer": document.producer,
        "averages": any(file.name == "ema.safetensors" for file in document.files),
    }
    found.files = {file.name: file.size for file in document.files}
    found.weights = [Tensor(p.path, p.dtype, list[int | str](p.shape)) for p in document.parameters]
    if document.file("model.json") is not None:
        model = read_model(stored.model(), str(stored.location / "model.json"))
        found.inputs, found.outputs = _signature(model)
        found.operators = _count(model)
    return found


def _describe_model(found: Inspection, model: ModelFile) -> None:
    found.facts |= {
        "checkpoint": model.checkpoint,
        "step": model.step,
        "slug": model.slug,
        "precision": model.precision,
    }
    found.inputs, found.outputs = _signature(model)
    found.operators = _count(model)
    found.weights = [_tensor(path, value.type) for path, value in model.graph.weights.items()]


def _signature(model: ModelFile) -> tuple[list[Tensor], list[Tensor]]:
    graph = model.graph
    return (
        [_tensor(value.name, value.type) for value in graph.inputs],
        [_tensor(name, value.type) for name, value in graph.outputs.items()],
    )


def _tensor(name: str, type: TensorType) -> Tensor:
    shape: list[int | str] = [d if isinstance(d, int) else str(d) for d in type.shape]
    return Tensor(name, type.dtype.value, shape)


def _count(model: ModelFile) -> dict[str, int]:
    return dict(Counter(_operations(model.graph)).most_common())


def _operations(graph: Graph) -> Iterator[str]:
    """The operations of a graph and of the bodies in it."""
    for node in graph.nodes:
        yield node.operation.name
        for value in node.attributes.values():
            if isinstance(value, Graph):
                yield from _operations(value)


def _inspect_weights(path: Path) -> Inspection:
    source = open_source(path)
    found = Inspection("weights", str(path))
    keys = source.keys()
    for key in keys:
        dtype, shape = source.describe(key)
        found.weights.append(Tensor(key, dtype, list[int | str](shape)))
    return found


def _inspect_onnx(path: Path) -> Inspection:
    if path.stat().st_size >= _ONNX_LIMIT:
        raise SexpgpuError("E-ONNX-002", "an ONNX file has at most 2 GiB", place=str(path))
    try:
        model = onnx.load_model(str(path), load_external_data=False)
    except (DecodeError, ValueError, OSError) as error:
        raise SexpgpuError(
            "E-ONNX-002",
            "the file is not ONNX, or it is truncated",
            came=str(error),
            place=str(path),
        ) from None
    if not model.HasField("graph") or not model.opset_import:
        raise SexpgpuError("E-ONNX-002", "the file holds no ONNX graph", place=str(path))
    graph = model.graph
    named = {tensor.name for tensor in graph.initializer}
    found = Inspection("onnx", str(path))
    found.facts = {
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "ir version": model.ir_version,
        "opset": ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import),
        "external data": sorted(
            {e.value for t in graph.initializer for e in t.external_data if e.key == "location"}
        ),
        **{entry.key: entry.value for entry in model.metadata_props},
    }
    found.inputs = [_onnx_value(v) for v in graph.input if v.name not in named]
    found.outputs = [_onnx_value(v) for v in graph.output]
    found.operators = dict(Counter(_operators(graph)).most_common())
    found.weights = [
        Tensor(t.name, _onnx_dtype(t.data_type), list[int | str](t.dims)) for t in graph.initializer
    ]
    return found


def _operators(graph: onnx.GraphProto) -> Iterator[str]:
    """The operators of a graph and of the bodies in it."""
    for node in graph.node:
        yield f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _operators(body)


_ONNX_DTYPES = {"float": "f32", "double": "f64", "bfloat16": "bf16", "float16": "f16",
                "int32": "i32", "int64": "i64", "bool": "bool", "int8": "i8", "uint8": "u8",
                "int16": "i16", "uint16": "u16", "uint32": "u32", "uint64": "u64"}  # fmt: skip


def _onnx_dtype(code: int) -> str:
    try:
        name = str(onnx.TensorProto.DataType.Name(code)).lower()
    except ValueError:
        return f"type {code}"
    return _ONNX_DTYPES.get(name, name)


def _onnx_value(value: onnx.ValueInfoProto) -> Tensor:
    kind = value.type.WhichOneof("value") or "unknown"
    if kind != "tensor_type":
        return Tensor(value.name, kind.removesuffix("_type"), [])
    shape: list[int | str] = [
        d.dim_value if d.HasField("dim_value") else d.dim_param or "?"
        for d in value.type.tensor_type.shape.dim
    ]
    return Tensor(value.name, _onnx_dtype(value.type.tensor_type.elem_type), shape)
