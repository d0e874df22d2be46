"""Calls of operations while the program runs: each makes a node of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Position, Value, make_node
from sexpgpu.export.graph.types import Array, DType, TensorType
from sexpgpu.export.language.binding import Binding, Place
from sexpgpu.export.language.tensors import Number, Tensor, number_array
from sexpgpu.export.language.values import Call
from sexpgpu.export.operations.operation import Operation, all_operations
from sexpgpu.export.operations.signature import GIVEN
from sexpgpu.schemas.errors import SexpgpuError, Span


@dataclass(frozen=True, slots=True)
class Note:
    """A metric, a counter or a guard: a scalar of the graph that training is told of."""

    kind: str
    name: str
    value: Value
    span: Span | None


NODE_LIMIT = 100_000
SCAN_DEPTH = 16


class Tracer:
    """Makes nodes, and knows in which part of the model and in which mode it makes them.

    `training` says whether dropout and the like are part of what is traced; otherwise the model
    runs as its evaluation does; `draws` whether random numbers may be drawn.  `notes` are the
    metrics, counters and guards met; `made` counts the nodes.
    """

    def __init__(self) -> None:
        self.training = False
        self.draws = False
        self.made = 0
        self.notes: list[Note] = []
        self._scopes = [""]
        self._scans = 0
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

    @contextmanager
    def mode(self, *, training: bool, draws: bool | None = None) -> Iterator[None]:
        """One trace of its own: its nodes are counted, and its notes taken, from the beginning.

        Random numbers may be drawn in training, unless `draws` says otherwise.
        """
        before = self.training, self.draws
        self.training, self.draws = training, training if draws is None else draws
        self.made, self.notes = 0, []
        try:
            yield
        finally:
            self.training, self.draws = before

    @contextmanager
    def inside_scan(self, span: Span | None) -> Iterator[None]:
        """The function of a `scan` is traced inside.  E-LIMIT-004 where scans nest too deep."""
        if self._scans == SCAN_DEPTH:
            raise SexpgpuError(
                "E-LIMIT-004", f"`scan` is nested more than {SCAN_DEPTH} deep", span=span
            )
        self._scans += 1
        try:
            yield
        finally:
            self._scans -= 1

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
        binding = Binding(operation, positional, keywords, call)
        attributes = binding.attributes
        if any(operand.optional for operand in operation.signature.operands):
            optional = [a.operand.name for a in binding.arguments if a.operand.optional]
            attributes[GIVEN] = tuple(optional)
        values = binding.values
        if operation.elementwise and not any(isinstance(value, Tensor) for value in values):
            return _on_numbers(operation, binding)
        inputs = [
            self.tensor(call, argument.value, dtype, argument.place)
            for argument, dtype in zip(binding.arguments, binding.dtypes(), strict=True)
        ]
        call.evaluator.charge(len(inputs), call.span)
        if operation.only_trains and not self.training:
            operation.infer_checked([value.type for value in inputs], attributes)
            return Tensor(inputs[0])
        if operation.random and not self.training and not self.draws:
            operation.infer_checked([value.type for value in inputs], attributes)
            raise call.error(
                "E-INFER-002",
                f"`{operation.name}` draws random numbers, and a model run alone must not",
                help="draw them in `prepare`, or in `loss`",
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
        self._count(span)
        position = Position(span.source.name, span.line, span.column) if span else None
        node = make_node(operation, inputs, attributes, position=position, scope=self.scope)
        return tuple(Tensor(value) for value in node.results)

    def constant(self, array: Array, span: Span | None = None) -> Value:
        """A constant of the graph; equal ones are one node."""
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._count(span)
            operation = all_operations()["constant"]
            self._constants[key] = make_node(operation, [], {"value": array}).results[0]
        return self._constants[key]

    def tensor(self, call: Call, value: Tensor | Number, dtype: DType, place: Place) -> Value:
        """The graph's value for an argument: a tensor's own, or a constant of the dtype."""
        if isinstance(value, Tensor):
            return value.value
        with call.blamed(place):
            return self.constant(number_array(call.name, value, dtype), call.span)

    def note(self, call: Call, name: str, value: Tensor | Number, dtype: DType) -> None:
        """Training is to be told of a scalar.  E-VALUE-001 in the function of a `scan`."""
        if self._scans:
            raise call.error(
                "E-VALUE-001",
                f"`{call.name}` notes one number a step, and `scan` runs its function many times",
                help="return it from the function, and note what becomes of it after the scan",
            )
        self.notes.append(Note(call.name, name, self.tensor(call, value, dtype, 1), call.span))

    def _count(self, span: Span | None) -> None:
        self.made += 1
        if self.made > NODE_LIMIT:
            raise SexpgpuError(
                "E-LIMIT-004",
                f"the model traces to more than {NODE_LIMIT:,} nodes",
                span=span,
                help="a loop over time is `scan`, which traces its body once",
            )


def _on_numbers(operation: Operation, binding: Binding) -> Number:
    """An elementwise operation on plain numbers, by its NumPy meaning in 64 bits."""
    wide = {DType.F32: DType.F64, DType.I32: DType.I64, DType.BOOL: DType.BOOL}
    arrays: list[Array] = []
    for argument, dtype in zip(binding.arguments, binding.dtypes(), strict=True):
        assert not isinstance(argument.value, Tensor)
        with binding.call.blamed(argument.place):
            arrays.append(number_array(binding.call.name, argument.value, wide[dtype]))
    operation.infer_checked([TensorType(DType.of(a), ()) for a in arrays], binding.attributes)
    with np.errstate(all="ignore"):
        result = operation.evaluate(arrays, binding.attributes)[0]
    number: Number = result.item()
    return number
