"""Calls of operations while the program runs: arguments are bound, and a node is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Position, Value, make_node
from sexpgpu.export.graph.types import Array, Batch, DType
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.tensors import (
    Number,
    Tensor,
    default_dtype,
    is_number,
    number_array,
)
from sexpgpu.export.language.values import Call, portray
from sexpgpu.export.operations.operation import Operation, all_operations
from sexpgpu.export.operations.signature import (
    GIVEN,
    Attribute,
    Kind,
    Operand,
)
from sexpgpu.schemas.errors import SexpgpuError, Span

NODE_LIMIT = 200_000


class Tracer:
    """Makes nodes, and knows in which part of the model and in which mode it makes them.

    `training` says whether dropout and random numbers are part of what is traced; otherwise the
    model runs as its evaluation does.  `notes` are the metrics, counters and guards met; `layers`
    the models of the prelude.
    """

    def __init__(self) -> None:
        self.training = False
        self.made = 0
        self.notes: list[tuple[str, str]] = []
        self.layers: dict[str, object] = {}
        self._scopes = [""]
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    @property
    def scope(self) -> str:
        return self._scopes[-1]

    @contextmanager
    def within(self, path: str) -> Iterator[None]:
        """Nodes made inside belong to the model part of this path, where it has one."""
        self._scopes.append(path or self.scope)
        try:
            yield
        finally:
            self._scopes.pop()

    def call(
        self,
        operation: Operation,
        positional: Sequence[Any],
        keywords: Mapping[str, Any],
        call: Call,
    ) -> object:
        """Applies an operation to values of the language; a tensor, or a list of its results.

        The number of arguments and the keywords were checked against the signature.
        """
        binding = _Binding(operation, positional, keywords, call)
        if operation.name == "dropout" and not self.training:
            return binding.tensors()[0]
        if operation.elementwise and not any(isinstance(v, Tensor) for v in binding.tensors()):
            return _on_numbers(operation, binding)
        if operation.random and not self.training:
            raise SexpgpuError(
                "E-INFER-002",
                f"`{operation.name}` draws random numbers, and a model run alone must not",
                help="draw them in `prepare`, or in `loss`",
            )
        dtypes = binding.dtypes()
        inputs = [
            self.tensor(value, dtypes[operand.group]) for operand, value in binding.operands()
        ]
        attributes = dict(binding.attributes)
        if any(operand.optional for operand in operation.signature.operands):
            attributes[GIVEN] = tuple(
                operand.name for operand, _ in binding.operands() if operand.optional
            )
        results = self.make(operation, inputs, attributes, call.span)
        if len(results) == 1 and not operation.gives_list:
            return results[0]
        return results

    def make(
        self,
        operation: Operation,
        inputs: Sequence[Value],
        attributes: Mapping[str, Any],
        span: Span | None,
    ) -> tuple[Tensor, ...]:
        """A node's results as tensors."""
        self.made += 1
        if self.made > NODE_LIMIT:
            raise SexpgpuError(
                "E-LIMIT-004",
                f"the model traces to more than {NODE_LIMIT:,} nodes",
                help="a loop over time is `scan`, which traces its body once",
            )
        position = Position(span.source.name, span.line, span.column) if span else None
        node = make_node(operation, inputs, attributes, position=position, scope=self.scope)
        return tuple(Tensor(value) for value in node.results)

    def constant(self, array: Array) -> Value:
        """A constant of the graph; equal ones are one node."""
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            operation = all_operations()["constant"]
            self._constants[key] = make_node(operation, [], {"value": array}).results[0]
        return self._constants[key]

    def tensor(self, value: object, dtype: DType) -> Value:
        """The graph's value for a tensor, or for a number in the dtype of its group."""
        if isinstance(value, Tensor):
            return value.value
        assert isinstance(value, int | float)
        return self.constant(number_array(value, dtype))


class _Binding:
    """The arguments of one call by the parameters of the operation's signature."""

    def __init__(
        self,
        operation: Operation,
        positional: Sequence[Any],
        keywords: Mapping[str, Any],
        call: Call,
    ) -> None:
        self.operation = operation
        self.caller = call
        self.values: dict[str, Any] = dict(keywords)
        self.places: dict[str, int | str] = {name: name for name in keywords}
        self.attributes: dict[str, Any] = {}
        self._positional(positional)
        for parameter in operation.signature.parameters:
            value = self.values.get(parameter.name)
            if isinstance(parameter, Attribute):
                given = parameter.name in self.values
                if not given and parameter.required:
                    raise call.error(
                        "E-CALL-002",
                        f"`{operation.name}` needs `:{parameter.name}`",
                        expected=operation.signature.show(operation.name),
                    )
                self.attributes[parameter.name] = (
                    self.attribute(parameter, value) if given else parameter.default
                )
            elif value is None and parameter.optional:
                self.values.pop(parameter.name, None)
            else:
                self.check_operand(parameter, value)

    def _positional(self, arguments: Sequence[Any]) -> None:
        parameters = self.operation.signature.positional
        variadic = bool(parameters) and getattr(parameters[-1], "variadic", False)
        if len(arguments) > len(parameters) and not variadic:
            raise self.caller.error(
                "E-CALL-002",
                f"`{self.operation.name}` takes {len(parameters)} tensors or numbers, "
                f"{len(arguments)} came",
                len(parameters),
                expected=self.operation.signature.show(self.operation.name),
            )
        for index, parameter in enumerate(parameters):
            if index >= len(arguments) and not (
                isinstance(parameter, Operand) and parameter.variadic
            ):
                return
            self.places[parameter.name] = index
            if isinstance(parameter, Operand) and parameter.variadic:
                rest = tuple(arguments[index:])
                single = len(rest) == 1 and isinstance(rest[0], tuple)
                self.values[parameter.name] = rest[0] if single else rest
            else:
                self.values[parameter.name] = arguments[index]

    def check_operand(self, operand: Operand, value: Any) -> None:
        """Every item is a tensor, or a number that may stand for one."""
        for item in value if operand.variadic else (value,):
            if isinstance(item, Tensor) or is_number(item):
                continue
            if isinstance(item, Batch):
                raise self.caller.error(
                    "E-SHAPE-002",
                    "the batch has no number that a tensor could be computed with",
                    self.places.get(operand.name),
                    came=str(item),
                    help="the model is traced once for any number of records",
                )
            raise self.kind_error(operand.name, "a tensor", item)

    def kind_error(self, name: str, expected: str, value: object) -> SexpgpuError:
        return self.caller.error(
            "E-TYPE-001",
            f"`{self.operation.name}` takes {expected} as `{name}`",
            self.places.get(name),
            came=portray(value),
            expected=self.operation.signature.show(self.operation.name),
        )

    def attribute(self, attribute: Attribute, value: Any) -> Any:
        """The value in Python's terms, checked for its kind."""
        if value is None and attribute.default is None:
            return None
        converted = _convert(attribute, value)
        if converted is None:
            choices = ", ".join(f":{choice}" for choice in attribute.choices)
            raise self.kind_error(attribute.name, choices or f"a {attribute.kind}", value)
        return converted

    def operands(self) -> list[tuple[Operand, Any]]:
        """Each tensor argument with its operand, in the order of a node's inputs."""
        found: list[tuple[Operand, Any]] = []
        for operand in self.operation.signature.operands:
            if operand.name in self.values:
                value = self.values[operand.name]
                found += [(operand, v) for v in (value if operand.variadic else (value,))]
        return found

    def tensors(self) -> list[Any]:
        return [value for _, value in self.operands()]

    def dtypes(self) -> dict[str, DType]:
        """The dtype of each group: its first tensor's, else what its first number would be."""
        dtypes: dict[str, DType] = {}
        for operand, value in self.operands():
            if isinstance(value, Tensor):
                dtypes.setdefault(operand.group, value.type.dtype)
        for operand, value in self.operands():
            if not isinstance(value, Tensor):
                dtype = default_dtype(value)
                if dtype not in operand.dtypes and DType.F32 in operand.dtypes:
                    dtype = DType.F32
                dtypes.setdefault(operand.group, dtype)
        return dtypes


def _convert(attribute: Attribute, value: Any) -> Any:
    """The attribute's value; None where it is of another kind."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    match attribute.kind:
        case Kind.INTEGER if whole or isinstance(value, Batch):
            return value
        case Kind.NUMBER if whole or isinstance(value, float):
            return float(value)
        case Kind.BOOLEAN if isinstance(value, bool):
            return value
        case Kind.WORD if isinstance(value, Keyword) and value.name in attribute.choices:
            return value.name
        case Kind.STRING if isinstance(value, str) and not isinstance(value, DType):
            return value
        case Kind.DTYPE if isinstance(value, DType):
            return value
        case Kind.INTEGERS if whole:
            return (value,)
        case Kind.INTEGERS if isinstance(value, tuple):
            fine = all(isinstance(v, int) and not isinstance(v, bool) for v in value)
            return value if fine else None
        case Kind.SHAPE if whole or isinstance(value, Batch):
            return (value,)
        case Kind.SHAPE if isinstance(value, tuple):
            fine = all(isinstance(v, int | Batch) and not isinstance(v, bool) for v in value)
            return value if fine else None
        case Kind.PADDING if isinstance(value, Keyword) and value.name in attribute.choices:
            return value.name
        case Kind.PADDING if _is_padding(value):
            return value
    return None


def _is_padding(value: Any) -> bool:
    """A whole number, or a list of whole numbers and pairs of them."""
    entries = value if isinstance(value, tuple) else (value,)
    numbers = [n for entry in entries for n in (entry if isinstance(entry, tuple) else (entry,))]
    pairs = all(len(entry) == 2 for entry in entries if isinstance(entry, tuple))
    return pairs and all(isinstance(n, int) and not isinstance(n, bool) for n in numbers)


def _on_numbers(operation: Operation, binding: _Binding) -> Number:
    """An elementwise operation on plain numbers, by its NumPy meaning in 64 bits."""
    numbers = binding.tensors()
    operands = [operand for operand, _ in binding.operands()]
    if all(isinstance(n, bool) for n in numbers):
        dtype = DType.BOOL
    elif all(isinstance(n, int) for n in numbers):
        dtype = DType.I64
    else:
        dtype = DType.F64
    if any(dtype not in operand.dtypes for operand in operands):
        dtype = DType.F64
    if any(dtype not in operand.dtypes for operand in operands):
        raise binding.kind_error(operands[0].name, "a tensor", numbers[0])
    arrays = [np.asarray(number, dtype.numpy) for number in numbers]
    with np.errstate(all="ignore"):
        result = operation.evaluate(arrays, binding.attributes)[0]
    number: Number = result.item()
    return number
