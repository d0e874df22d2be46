"""The names for tensors: every operation as a function, and what is known of a tensor's type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Batch, Dimension, DType, multiply
from sexpgpu.export.language.arithmetic import NUMBER_FUNCTIONS
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.scanning import scan_builtin
from sexpgpu.export.language.signature import signature_of
from sexpgpu.export.language.tensors import Initializer, Tensor, default_dtype, is_number
from sexpgpu.export.language.tracing import Tracer
from sexpgpu.export.language.values import Builtin, Call, Implementation
from sexpgpu.export.operations.operation import Operation, all_operations
from sexpgpu.export.operations.rules import normalize_axis
from sexpgpu.export.operations.signature import Attribute, Kind, Signature, show_attribute
from sexpgpu.schemas.errors import Span

#: Operations that a call may give any number of tensors; two at a time, from the left.
CHAINED = ("+", "-", "*", "minimum", "maximum", "logical-and", "logical-or")

#: Operations that the language reaches by another name or form.
_HIDDEN = ("constant", "scan")

_FILLED = "(&optional shape &key (dtype f32))"
_ABOUT_FILLED = "a tensor of {0} everywhere; without a shape an initializer: every number is {0}"

#: Names that are an operation when a tensor comes first, and a layer of the prelude otherwise.
LAYERS = {"lstm": "lstm-layer", "gru": "gru-layer", "dropout": "dropout-layer"}


def tensor_builtins(tracer: Tracer) -> dict[str, object]:
    """Every name of the language that has to do with tensors."""
    builtins = [
        _operation_builtin(tracer, operation)
        for name, operation in all_operations().items()
        if name not in _HIDDEN
    ]
    builtins += [
        scan_builtin(tracer),
        Builtin("tensor", "(values &key dtype)", _literal(tracer), "a literal tensor"),
        Builtin("zeros", _FILLED, _filled(tracer, 0.0, "zeros"), _ABOUT_FILLED.format(0)),
        Builtin("ones", _FILLED, _filled(tracer, 1.0, "ones"), _ABOUT_FILLED.format(1)),
        Builtin(
            "shape", "(x)", lambda call, p, k: _type(call, p[0]).shape, "a tensor's dimensions"
        ),
        Builtin("rank", "(x)", lambda call, p, k: _type(call, p[0]).rank, "how many axes it has"),
        Builtin("dtype", "(x)", lambda call, p, k: _type(call, p[0]).dtype, "a tensor's dtype"),
        Builtin("dim", "(x axis)", _dim, "how long an axis of a tensor is"),
        Builtin("metric", "(name value)", _note(tracer), "a number of training, by name"),
        Builtin("counter", "(name value)", _note(tracer), "a number that training adds up"),
        Builtin("guard", "(name condition)", _note(tracer), "what must hold while training"),
    ]
    named: dict[str, object] = {builtin.name: builtin for builtin in builtins}
    named["quotient"] = _renamed(tracer, "quotient", "floor-divide")
    for name, layer in LAYERS.items():
        if name not in all_operations():
            continue
        named[name] = OperationOrLayer(name, all_operations()[name], layer, tracer)
    return named


class OperationOrLayer:
    """A name that is an operation when a tensor comes first, and a layer of the prelude else."""

    def __init__(self, name: str, operation: Operation, layer: str, tracer: Tracer) -> None:
        self.call_name = name
        self.operation = operation
        self.layer = layer
        self.tracer = tracer

    def call(
        self,
        evaluator: Evaluator,
        positional: Sequence[Any],
        keywords: Mapping[str, Any],
        span: Span | None,
    ) -> object:
        """Traces the operation, or makes the layer."""
        if positional and isinstance(positional[0], Tensor):
            signature = signature_of(signature_text(self.operation.signature))
            signature.check(self.call_name, len(positional), keywords, span)
            call = Call(evaluator, self.call_name, span)
            return self.tracer.call(self.operation, positional, keywords, call)
        return evaluator.apply(self.tracer.layers[self.layer], positional, keywords, span)

    def describe_value(self) -> str:
        return "a function"

    def show_value(self) -> str:
        return f"#<function {self.call_name}>"


def signature_text(signature: Signature) -> str:
    """An operation's signature as the language writes parameter lists."""
    required, optional, rest = [], [], []
    for parameter in signature.positional:
        if isinstance(parameter, Attribute):
            if parameter.required:
                required.append(parameter.name)
            else:
                optional.append(f"({parameter.name} {_default(parameter)})")
        elif parameter.variadic:
            rest = ["&rest", parameter.name]
        elif parameter.optional:
            optional.append(parameter.name)
        else:
            required.append(parameter.name)
    keys = [
        parameter.name
        if not isinstance(parameter, Attribute) or parameter.required
        else f"({parameter.name} {_default(parameter)})"
        for parameter in signature.keywords.values()
    ]
    words = required + (["&optional", *optional] if optional else []) + rest
    return "(" + " ".join(words + (["&key", *keys] if keys else [])) + ")"


def _default(attribute: Attribute) -> str:
    if attribute.kind is Kind.STRING and attribute.default is not None:
        return f'"{attribute.default}"'
    return show_attribute(attribute.default)


def _operation_builtin(tracer: Tracer, operation: Operation) -> Builtin:
    def trace(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        return tracer.call(operation, positional, keywords, call)

    name = operation.name
    plain = NUMBER_FUNCTIONS.get(name)
    function: Implementation = trace
    text = signature_text(operation.signature)
    if name in CHAINED:
        function = _chained(tracer, operation)
        text = "(a &rest more)"
    if plain is not None:
        function = _arithmetic(name, plain.function, function)
        # `max` is of several numbers, or of a tensor along an axis.
        text = (
            plain.signature if operation.elementwise else text.replace(" &key", " &rest more &key")
        )
    return Builtin(name, text, function, operation.__doc__ or "")


def _renamed(tracer: Tracer, name: str, operation: str) -> Builtin:
    """The name that numbers have for an operation on tensors."""
    plain, meant = NUMBER_FUNCTIONS[name], all_operations()[operation]

    def trace(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        return tracer.call(meant, positional, keywords, call)

    return Builtin(name, plain.signature, _arithmetic(name, plain.function, trace), plain.about)


def _chained(tracer: Tracer, operation: Operation) -> Implementation:
    def trace(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        if len(positional) == 1:
            if operation.name == "-":
                return tracer.call(all_operations()["neg"], positional, {}, call)
            return positional[0]
        result = positional[0]
        for item in positional[1:]:
            result = tracer.call(operation, (result, item), {}, call)
        return result

    return trace


def _arithmetic(name: str, plain: Implementation, traced: Implementation) -> Implementation:
    """Plain numbers by the language's own arithmetic; anything with a tensor is traced."""

    def compute(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        tensors = batch = False
        for item in positional:
            tensors = tensors or isinstance(item, Tensor)
            batch = batch or isinstance(item, Batch)
        if tensors and (not batch or name not in ("=", "!=")):
            return traced(call, positional, keywords)
        if batch and name not in ("=", "!="):
            return _batch_product(call, name, positional)
        return plain(call, positional, keywords)

    return compute


def _batch_product(call: Call, name: str, positional: Sequence[Any]) -> Dimension:
    """The batch times whole numbers; nothing else can be done with it."""
    result: Dimension | None = 1
    for index, item in enumerate(positional):
        whole = isinstance(item, Batch) or (isinstance(item, int) and not isinstance(item, bool))
        if name == "*" and whole and result is not None:
            result = multiply(result, item)
        if name != "*" or not whole or result is None:
            raise call.error(
                "E-SHAPE-002",
                f"`{name}` would need to know the size of the batch",
                index,
                came=" and ".join(str(i) for i in positional),
                help="the model is traced once for any number of records: the batch may be passed "
                "on, multiplied by a whole number and compared for equality",
            )
    assert result is not None
    return result


def _type(call: Call, value: object) -> Any:
    if not isinstance(value, Tensor):
        raise call.wrong_kind(value, 0, "a tensor")
    return value.type


def _dim(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Dimension:
    type, axis = _type(call, positional[0]), positional[1]
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise call.wrong_kind(axis, 1, "an axis, a whole number")
    dimension: Dimension = type.shape[normalize_axis("dim", axis, type.rank)]
    return dimension


def _literal(tracer: Tracer) -> Implementation:
    """`(tensor (list 1.0 2.0))`: nested lists of numbers."""

    def make(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Tensor:
        values = positional[0]
        leaves = list(_leaves(call, values))
        dtype = keywords.get("dtype")
        if dtype is None:
            kinds = {default_dtype(leaf) for leaf in leaves}
            dtype = DType.F32 if not leaves or DType.F32 in kinds else kinds.pop()
        if not isinstance(dtype, DType):
            raise call.wrong_kind(dtype, "dtype", "a dtype")
        try:
            wide = np.array(values, np.float64 if dtype.is_float else None)
        except (ValueError, OverflowError):
            raise call.error(
                "E-SHAPE-001", "the lists of a literal tensor are not all as long", 0
            ) from None
        if dtype.is_integer and wide.dtype.kind == "f" and leaves:
            raise call.error(
                "E-DTYPE-001", f"a fraction among the numbers of a tensor of {dtype}", 0
            )
        limit = np.iinfo(dtype.numpy) if dtype.is_integer else None
        if limit is not None and any(not limit.min <= leaf <= limit.max for leaf in leaves):
            raise call.error("E-VALUE-001", f"a number does not fit into {dtype}", 0)
        with np.errstate(over="ignore"):
            return Tensor(tracer.constant(wide.astype(dtype.numpy)))

    return make


def _leaves(call: Call, values: object) -> Any:
    """The numbers of nested lists."""
    if isinstance(values, tuple):
        for item in values:
            yield from _leaves(call, item)
    elif is_number(values):
        yield values
    else:
        raise call.wrong_kind(values, 0, "numbers, in lists of one length to any depth")


def _filled(tracer: Tracer, number: float, name: str) -> Implementation:
    """`(zeros shape)` is a tensor, `(zeros)` an initializer."""

    def make(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        if not positional and not keywords:
            return Initializer(name, ())
        full = all_operations()["full"]
        return tracer.call(full, [*positional, number], keywords, call)

    return make


def _note(tracer: Tracer) -> Implementation:
    """`(metric :loss x)`: what training notes; it is checked, and no part of the model alone."""

    def note(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        name, value = positional
        if not isinstance(name, Keyword):
            raise call.wrong_kind(name, 0, f"a name: ({call.name} :name x)")
        if not isinstance(value, Tensor) and not is_number(value):
            raise call.wrong_kind(value, 1, "a scalar tensor")
        if isinstance(value, Tensor) and value.type.shape:
            raise call.error(
                "E-SHAPE-001", f"`{call.name}` notes a scalar", 1, came=str(value.type)
            )
        tracer.notes.append((call.name, name.name))

    return note
