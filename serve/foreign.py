"""Any ONNX file as something to host: its inputs as records, its batch axis, its free dimensions.

The batch is the symbolic dimension that the first axis of an input has, or one that is called so.
Every other symbolic dimension is fixed with `--dim`.  Whether records are independent is not
proved here but probed, like the bits of every batch size.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto

from sexpgpu.export.graph.types import DType
from sexpgpu.export.onnx.lowering import ONNX_DTYPES
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve.external import name_targets
from sexpgpu.serve.hosted import Hosted, Limits, Shaping, check_name, file_version, unreadable
from sexpgpu.serve.observation import Value, observe_outputs
from sexpgpu.serve.rewriting import add_at, bodies, move_batch, prune, round_products

_DTYPES = {code: dtype for dtype, code in ONNX_DTYPES.items()}
_BATCH_NAMES = ("batch", "batch_size", "batchsize", "n", "b", "bs")
#: Their kernels give an element other bits in the tail that is left of the vectors.
_DOUBTFUL = frozenset("Log Softplus Elu Selu Celu Mish Sin Cos Asin Acos Atan".split())


def open_onnx(path: Path, shaping: Shaping) -> Hosted:
    """Opens an ONNX file.

    Raises E-ONNX-002 where it cannot be read, E-SERVE-004 where it cannot be served: strings or
    sequences, free dimensions that are not fixed; E-EXPORT-002 for an output that it has not.
    """
    check_name(path.resolve())
    model, version = _read(path)
    folder = name_targets(model, path)
    changed = False
    if shaping.outputs:
        prune(model, shaping.outputs)
        changed = True
    if shaping.precision == "bf16":
        changed = round_products(model) or changed
    named = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in named]
    # The sizes are what calls have; the file stays as it is, and so do the runtime's answers.
    inputs, outputs = _fix_dimensions(inputs, model.graph.output, shaping.dimensions)
    limits = {}
    if shaping.at:
        at, outputs, length = add_at(model, outputs)
        inputs.append(at)
        limits["at"] = Limits(0, length)
        changed = True
    batch = _batch_name(inputs)
    taken = [_describe(value, batch) for value in inputs]
    free = sorted({d for v in taken for d in v.dimensions if isinstance(d, str) and d != batch})
    if free:
        raise SexpgpuError(
            "E-SERVE-004",
            "the file has free dimensions besides the batch",
            place=str(path),
            came=", ".join(free),
            help="fix each: " + " ".join(f"--dim {name}=N" for name in free),
        )
    given = [_describe(value, batch) for value in outputs]
    if any(isinstance(d, str) and d != batch for value in given for d in value.dimensions):
        source = model.SerializeToString() if changed else path
        given = observe_outputs(source, folder, taken, given)
    obstacle = _obstacle(taken, given, batch)
    layouts = {}
    if not obstacle:
        for value in (*taken, *given):
            if value.axis:
                layouts[value.name] = move_batch(model, value.name, value.axis, value.record)
                changed = True
    return Hosted(
        place=str(path),
        model=model.SerializeToString() if changed else path,
        weights={},
        inputs=tuple(value.spec() for value in taken),
        outputs=tuple(value.spec() for value in given),
        limits=limits,
        obstacle=obstacle,
        checkpoint=str(path),
        slug=path.stem,
        precision=shaping.precision or "f32",
        layouts=layouts,
        folder=folder if changed else "",
        doubtful=_is_doubtful(model.graph),
        files={os.path.abspath(path): version},
    )


def _read(path: Path) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """What the file holds, and which file it was."""
    try:
        with open(path, "rb") as file:
            version = file_version(os.fstat(file.fileno()))
            model = onnx.load_model(file, load_external_data=False)
    except OSError as error:
        raise unreadable(path, error) from None
    except (DecodeError, ValueError) as error:
        raise SexpgpuError(
            "E-ONNX-002",
            "the file is not ONNX, or it is truncated",
            came=str(error),
            place=str(path),
        ) from None
    if not model.HasField("graph") or not model.graph.output:
        raise SexpgpuError("E-ONNX-002", "the file holds no ONNX graph", place=str(path))
    return model, version


def _fix_dimensions(
    inputs: Iterable[onnx.ValueInfoProto],
    outputs: Iterable[onnx.ValueInfoProto],
    fixed: Mapping[str, int],
) -> tuple[list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]]:
    """Copies with sizes in place of names.  Raises E-SERVE-004 for a name that is nowhere."""
    used: set[str] = set()

    def fix(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(value)
        for axis, dimension in enumerate(copy.type.tensor_type.shape.dim):
            name = _dimension_name(value.name, axis, dimension)
            if name in fixed and not _is_known(dimension):
                used.add(name)
                dimension.dim_value = fixed[name]
        return copy

    found = [fix(value) for value in inputs], [fix(value) for value in outputs]
    unknown = set(fixed) - used
    if unknown:
        raise SexpgpuError(
            "E-SERVE-004",
            f"the file has no free dimension `{sorted(unknown)[0]}`",
            help="`sexpgpu inspect FILE.onnx` shows them",
        )
    return found


def _dimension_name(name: str, axis: int, dimension: onnx.TensorShapeProto.Dimension) -> str:
    """A dimension's own name, or `input.0` for one that has none."""
    own = dimension.dim_param
    return own if own and own != "?" else f"{name}.{axis}"


def _is_known(dimension: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether it is a size; some exporters write -1 for a free one."""
    return dimension.HasField("dim_value") and dimension.dim_value >= 0


def _batch_name(inputs: Iterable[onnx.ValueInfoProto]) -> str | None:
    """The name of the batch: that of an input's first axis, or one that is called so."""
    first: str | None = None
    for value in inputs:
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if _is_known(dimension):
                continue
            name = _dimension_name(value.name, axis, dimension)
            if name.lower() in _BATCH_NAMES:
                return name
            if axis == 0 and first is None:
                first = name
    return first


def _describe(value: onnx.ValueInfoProto, batch: str | None) -> Value:
    kind = value.type.WhichOneof("value")
    dtype = _DTYPES.get(value.type.tensor_type.elem_type) if kind == "tensor_type" else None
    if dtype is None:
        what = "no tensor" if kind != "tensor_type" else _type_name(value)
        raise SexpgpuError(
            "E-SERVE-004",
            f"`{value.name}` is {what}, which the protocol does not have",
            expected="tensors of " + ", ".join(DType),
            help="leave an output out by naming the others with --output",
        )
    if not value.type.tensor_type.HasField("shape"):
        raise SexpgpuError("E-SERVE-004", f"the file does not say the shape of `{value.name}`")
    dimensions: list[int | str] = []
    axis = None
    for index, dimension in enumerate(value.type.tensor_type.shape.dim):
        if _is_known(dimension):
            dimensions.append(dimension.dim_value)
            continue
        name = _dimension_name(value.name, index, dimension)
        unnamed_first = index == 0 and name == f"{value.name}.0" and batch is not None
        if (name == batch or unnamed_first) and axis is None:
            axis = index
            dimensions.append(batch or name)
        else:
            dimensions.append(name)
    return Value(value.name, dtype, tuple(dimensions), axis)


def _is_doubtful(graph: onnx.GraphProto) -> bool:
    """Whether an element's bits may depend on where in a vector it lies: in f64 nearly all do."""
    for node in graph.node:
        if node.op_type in _DOUBTFUL:
            return True
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.DOUBLE:
                return True
            if any(_is_doubtful(body) for body in bodies(attribute)):
                return True
    types = [value.type.tensor_type.elem_type for value in graph.input]
    types += [tensor.data_type for tensor in graph.initializer]
    return TensorProto.DOUBLE in types


def _type_name(value: onnx.ValueInfoProto) -> str:
    code = value.type.tensor_type.elem_type
    return str(TensorProto.DataType.Name(code)).lower()


def _obstacle(inputs: list[Value], outputs: list[Value], batch: str | None) -> str:
    """Why calls cannot run together, as far as the file's shapes say."""
    if batch is None:
        return "the file's batch is fixed"
    for value in (*inputs, *outputs):
        if value.axis is None:
            return f"`{value.name}` has no axis of records"
    return ""
