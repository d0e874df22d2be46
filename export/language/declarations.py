"""Parameters as a program declares them: `param`, and the initializers that it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sexpgpu.export.graph.graph import reachable
from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.language.arguments import as_integer, as_number, as_string
from sexpgpu.export.language.evaluator import OBJECT_COST
from sexpgpu.export.language.initializers import INITIALIZERS
from sexpgpu.export.language.tensors import Initializer, Parameter, Tensor
from sexpgpu.export.language.values import Builtin, Call, Function
from sexpgpu.export.operations.operation import check_size
from sexpgpu.schemas.errors import SexpgpuError


def parameter_builtins() -> list[Builtin]:
    """`param`, and the initializers it takes."""
    return [
        Builtin(
            "param",
            "(shape &key (dtype f32) init load key (frozen false))",
            _param,
            "a parameter of a model",
        ),
        *(_initializer(name, *described) for name, described in INITIALIZERS.items()),
    ]


def _initializer(name: str, signature: str, about: str) -> Builtin:
    def make(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Initializer:
        numbers = [float(as_number(call, item, index)) for index, item in enumerate(positional)]
        for index, number in enumerate(numbers):
            if not math.isfinite(number) and name != "constant":
                raise call.error("E-VALUE-001", f"`{name}` takes finite numbers", index)
        if name == "normal" and numbers[0] < 0:
            raise call.error("E-VALUE-001", "a deviation is not negative", 0)
        if name == "uniform" and numbers[0] > numbers[1]:
            raise call.error("E-VALUE-001", "the lower bound of `uniform` comes first", 0)
        return Initializer(name, tuple(numbers))

    return Builtin(name, signature, make, f"an initializer: {about}")


def _param(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Parameter:
    call.evaluator.charge(OBJECT_COST, call.span)
    dtype = keywords.get("dtype", DType.F32)
    if not isinstance(dtype, DType):
        raise call.wrong_kind(dtype, "dtype", "a dtype: " + ", ".join(DType))
    frozen = keywords.get("frozen", False)
    if not isinstance(frozen, bool):
        raise call.wrong_kind(frozen, "frozen", "true or false")
    load, key = (
        None if keywords.get(name) is None else as_string(call, keywords[name], name)
        for name in ("load", "key")
    )
    if key is not None and load is None:
        raise call.error("E-VALUE-001", "`:key` is the key of a `:load` file", "key")
    type = TensorType(dtype, _shape(call, positional[0]))
    return Parameter(
        type,
        _init(call, keywords.get("init"), type),
        load=load,
        key=key,
        frozen=frozen,
        span=call.span,
    )


def _shape(call: Call, value: object) -> tuple[int, ...]:
    """The shape of a parameter: whole numbers, of which one may stand for a list of it."""
    shape: list[int] = []
    for size in value if isinstance(value, tuple) else (value,):
        if isinstance(size, Batch):
            raise call.error(
                "E-SHAPE-002",
                "a parameter cannot be as long as the batch",
                0,
                help="parameters are the same for every record",
            )
        shape.append(as_integer(call, size, 0))
        if shape[-1] < 0:
            raise call.error("E-VALUE-001", "a size is not negative", 0, came=str(size))
    with call.blamed(0):
        check_size("`param`", tuple(shape))
    return tuple(shape)


def _init(call: Call, value: object, type: TensorType) -> Initializer:
    if value is None:
        return Initializer("normal", (0.02,))
    if isinstance(value, Initializer):
        return value
    if isinstance(value, Tensor):
        return _computed(call, value, type)
    raise _no_initializer(call, value)


def _computed(call: Call, tensor: Tensor, type: TensorType) -> Initializer:
    """A parameter that begins as a tensor, which must be known before the model is applied."""
    if tensor.type.dtype is not type.dtype:
        raise call.error(
            "E-DTYPE-001",
            "a parameter begins as a tensor of another dtype",
            "init",
            came=str(tensor.type),
            expected=str(type),
            help=f"`(cast x {type.dtype})` changes it",
        )
    nodes = reachable([tensor.value])
    call.evaluator.charge(len(nodes), call.span)
    leaves = [tensor.value, *(value for node in nodes for value in node.inputs)]
    if any(value.node is None for value in leaves) or any(node.operation.random for node in nodes):
        raise call.error(
            "E-VALUE-001",
            "a parameter begins as a tensor that is not known yet",
            "init",
            expected="a tensor that depends on no input, no parameter and no random numbers",
        )
    if tensor.type.shape != type.shape:
        raise call.error(
            "E-SHAPE-001",
            "a parameter begins as a tensor of another shape",
            "init",
            came=str(tensor.type),
            expected=str(type),
        )
    return Initializer("tensor", value=tensor.value)


def _no_initializer(call: Call, value: object) -> SexpgpuError:
    help = None
    if isinstance(value, Builtin | Function):
        help = f"call it: `({value.name}{'' if value.signature.least == 0 else ' …'})`"
    elif isinstance(value, int | float):
        help = f"one number everywhere is `(constant {value})`"
    shown = [f"({name} {text[1:-1]})" for name, (text, _) in INITIALIZERS.items()]
    names = ", ".join(["(zeros)", "(ones)", *(text.replace(" )", ")") for text in shown)])
    return call.wrong_kind(value, "init", f"an initializer: {names}; or a tensor", help)
