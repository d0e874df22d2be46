"""The names for tensors: every operation as a function, and what is known of a tensor's type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sexpgpu.export.graph.types import BATCH_HELP, Batch, Dimension, DType, multiply
from sexpgpu.export.language.arguments import as_integer
from sexpgpu.export.language.arithmetic import NUMBER_FUNCTIONS
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.literals import literal_builtins
from sexpgpu.export.language.models import ModelClass
from sexpgpu.export.language.scanning import scan_builtin
from sexpgpu.export.language.signature import signature_of
from sexpgpu.export.language.tensors import Tensor, default_dtype, is_number
from sexpgpu.export.language.tracing import Tracer
from sexpgpu.export.language.values import Builtin, Call, Implementation, portray, show
from sexpgpu.export.operations.operation import Operation, all_operations
from sexpgpu.export.operations.rules import normalize_axis
from sexpgpu.export.operations.signature import Attribute, Kind, Signature, show_attribute

#: Operations that a call may give any number of tensors; two at a time, from the left.
CHAINED = ("+", "-", "*", "/", "logical-and", "logical-or")

#: Comparisons of each argument with the next, which must all hold.
COMPARED = ("=", "<", "<=", ">", ">=")

#: Operations that the language reaches by another name or form.
_HIDDEN = ("constant", "scan")

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
        *literal_builtins(tracer),
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
    return named


def operation_or_layer(tracer: Tracer, name: str, layer: ModelClass) -> Builtin:
    """A name that is an operation when a tensor comes first, and a layer of the prelude else."""
    operation = all_operations()[name]
    traced = signature_of(signature_text(operation.signature))

    def apply(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        of_tensor = bool(positional) and isinstance(positional[0], Tensor)
        for index, value in enumerate(positional):
            if isinstance(value, Tensor) and not of_tensor:
                raise call.error(
                    "E-CALL-002",
                    f"`{name}` takes the tensor first",
                    index,
                    expected=operation.signature.show(name),
                )
        signature = traced if of_tensor else layer.signature
        signature.check(
            name, len(positional), keywords, call.span, keyword_spans=call.keyword_spans
        )
        if of_tensor:
            return tracer.call(operation, positional, keywords, call)
        return call.evaluator.apply(layer, positional, keywords, call.span)

    keys = " ".join(dict.fromkeys([*traced.keys, *layer.signature.keys]))
    text = f"(&rest arguments{' &key ' if keys else ''}{keys})"
    return Builtin(
        name, text, apply, f"the operation of a tensor; else the layer `{layer.call_name}`"
    )


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
        function, text = _chained(tracer, operation), "(a &rest more)"
    elif name in COMPARED:
        function = _compared(tracer, operation)
    if plain is not None and not operation.elementwise:
        # `max` is of several numbers, or of a tensor along an axis.
        function, text = _along_axis(trace), text.replace(" &key", " &rest more &key")
    elif plain is not None:
        text = plain.signature
    if plain is not None:
        function = _arithmetic(name, plain.function, function)
    return Builtin(name, text, function, operation.__doc__ or "")


def _along_axis(traced: Implementation) -> Implementation:
    """`max` and `min` of a tensor, which reduce it, and do not compare it with another."""

    def reduce(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        if len(positional) > 1:
            raise call.error(
                "E-CALL-002",
                f"`{call.name}` reduces one tensor, {len(positional)} arguments came",
                1,
                expected=f"({call.name} x &key axis keep)",
                help=f"elementwise, the {call.name} of two tensors is `({call.name}imum a b)`",
            )
        return traced(call, positional, keywords)

    return reduce


def _renamed(tracer: Tracer, name: str, operation: str) -> Builtin:
    """The name that numbers have for an operation on tensors."""
    plain, meant = NUMBER_FUNCTIONS[name], all_operations()[operation]

    def trace(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        return tracer.call(meant, positional, keywords, call)

    return Builtin(name, plain.signature, _arithmetic(name, plain.function, trace), plain.about)


def _chained(tracer: Tracer, operation: Operation) -> Implementation:
    """Any number of arguments, taken together two at a time from the left."""

    def trace(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        if len(positional) == 1 and operation.name == "-":
            return tracer.call(all_operations()["neg"], positional, {}, call)
        if len(positional) == 1 and operation.name == "/":
            return tracer.call(operation, (1, *positional), {}, call.of(0, 0))
        if len(positional) == 2:
            return tracer.call(operation, positional, {}, call)
        result = positional[0]
        for index, item in enumerate(positional[1:], 1):
            result = tracer.call(operation, (result, item), {}, call.of(0, index))
        return result

    return trace


def _compared(tracer: Tracer, operation: Operation) -> Implementation:
    """Each argument with the next; of more than two, whether every comparison holds."""

    def trace(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        if len(positional) == 2:
            return tracer.call(operation, positional, {}, call)
        results = [
            tracer.call(operation, pair, {}, call.of(index, index + 1))
            for index, pair in enumerate(pairwise(positional))
        ]
        both, result = all_operations()["logical-and"], results[0]
        for other in results[1:]:
            result = tracer.call(both, (result, other), {}, call)
        return result

    return trace


def _arithmetic(name: str, plain: Implementation, traced: Implementation) -> Implementation:
    """Plain numbers by the language's own arithmetic; anything with a tensor is traced."""

    def compute(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        tensors = batch = False
        for item in positional:
            tensors = tensors or isinstance(item, Tensor)
            batch = batch or isinstance(item, Batch)
        if keywords or (tensors and (not batch or name not in ("=", "!="))):
            return traced(call, positional, keywords)
        if batch and name not in ("=", "!="):
            return _batch_product(call, name, positional)
        return plain(call, positional, keywords)

    return compute


def _batch_product(call: Call, name: str, positional: Sequence[Any]) -> Dimension:
    """The batch times whole numbers; nothing else can be done with it."""
    result: Dimension | None = 1
    for index, item in enumerate(positional):
        whole = isinstance(item, Batch) or type(item) is int
        if name == "*" and whole and result is not None:
            result = multiply(result, item)
        if name != "*" or not whole or result is None:
            raise call.error(
                "E-SHAPE-002",
                f"`{name}` would need to know the size of the batch",
                index,
                came=" and ".join([show(item, 20) for item in positional[:4]]),
                help=BATCH_HELP,
            )
    assert result is not None
    if (result.multiple if isinstance(result, Batch) else result) < 0:
        raise call.error("E-VALUE-001", "a dimension is not negative", came=str(result))
    return result


def _type(call: Call, value: object) -> Any:
    if not isinstance(value, Tensor):
        raise call.wrong_kind(value, 0, "a tensor")
    return value.type


def _dim(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Dimension:
    type, axis = _type(call, positional[0]), as_integer(call, positional[1], 1)
    with call.blamed(1):
        dimension: Dimension = type.shape[normalize_axis("dim", axis, type.rank)]
    return dimension


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
                "E-SHAPE-001",
                f"`{call.name}` notes a scalar",
                1,
                came=str(value.type),
                help="reduce it, with `all`" if call.name == "guard" else "reduce it, with `mean`",
            )
        dtype = value.type.dtype if isinstance(value, Tensor) else default_dtype(value)
        if (dtype is DType.BOOL) is not (call.name == "guard"):
            expected = "true or false" if call.name == "guard" else "a number"
            raise call.error(
                "E-DTYPE-002", f"`{call.name}` notes {expected}", 1, came=portray(value)
            )
        tracer.note(call, name.name, value, dtype)

    return note
