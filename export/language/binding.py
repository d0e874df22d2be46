"""The arguments of one call of an operation, told apart by its signature and checked for kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sexpgpu.export.graph.types import BATCH_HELP, Batch, DType
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.export.language.tensors import Number, Tensor, default_dtype, is_number
from sexpgpu.export.language.values import Builtin, Call, Callable, Function, portray
from sexpgpu.export.operations.operation import Operation
from sexpgpu.export.operations.signature import Attribute, Kind, Operand
from sexpgpu.schemas.errors import SexpgpuError

Place = int | str

_DTYPES = ", ".join([f"`{dtype}`" for dtype in DType])


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor or number given for an operand, and where: at a position, or by a keyword."""

    operand: Operand
    value: Tensor | Number
    place: Place


class Binding:
    """`arguments` are the tensors and numbers in the order of a node's inputs, `attributes` the
    rest in Python's terms.

    The number of arguments and the keywords were checked against the signature.  Raises E-CALL-002
    for what is missing, E-TYPE-001 for values of another kind, and E-SHAPE-002 for the batch where
    a number is needed.
    """

    def __init__(
        self,
        operation: Operation,
        positional: Sequence[Any],
        keywords: Mapping[str, Any],
        call: Call,
    ) -> None:
        self.operation = operation
        self.call = call
        self.arguments: list[Argument] = []
        self.attributes: dict[str, Any] = {}
        given: dict[str, tuple[Any, Place]] = {n: (v, n) for n, v in keywords.items()}
        given |= self._positional(positional)
        for parameter in operation.signature.parameters:
            value, place = given.get(parameter.name, (None, parameter.name))
            if isinstance(parameter, Operand):
                self._bind_operand(parameter, value, place)
            elif parameter.name in given:
                self.attributes[parameter.name] = self._attribute(parameter, value, place)
            elif parameter.required:
                message = f"`{call.name}` needs `:{parameter.name}`"
                raise call.error("E-CALL-002", message, expected=self._usage())
            else:
                self.attributes[parameter.name] = parameter.default

    @property
    def values(self) -> list[Tensor | Number]:
        """The tensors and numbers."""
        return [argument.value for argument in self.arguments]

    def dtypes(self) -> list[DType]:
        """The dtype of each argument: a number has that of its group's first tensor.

        Where a group has no tensor, that of its first argument that is as wide as all of them.
        """
        groups: dict[str, DType] = {}
        numbers: dict[str, list[Number]] = {}
        for argument in self.arguments:
            if isinstance(argument.value, Tensor):
                groups.setdefault(argument.operand.group, argument.value.type.dtype)
            else:
                numbers.setdefault(argument.operand.group, []).append(argument.value)
        for argument in self.arguments:
            group = argument.operand.group
            if group not in groups:
                groups[group] = _common_dtype(numbers[group], argument.operand.dtypes)
        return [groups[argument.operand.group] for argument in self.arguments]

    def _kind_error(
        self, name: str, place: Place, expected: str, value: object, help: str | None
    ) -> SexpgpuError:
        return self.call.error(
            "E-TYPE-001",
            f"`{self.call.name}` takes {expected} as `{name}`",
            place,
            came=portray(value),
            expected=self._usage(),
            help=help,
        )

    def _positional(self, values: Sequence[Any]) -> dict[str, tuple[Any, Place]]:
        """The positional arguments by the names of their parameters."""
        parameters = self.operation.signature.positional
        found: dict[str, tuple[Any, Place]] = {}
        for index, parameter in enumerate(parameters):
            if isinstance(parameter, Operand) and parameter.variadic:
                found[parameter.name] = (tuple(values[index:]), index)
                return found
            if index < len(values):
                found[parameter.name] = (values[index], index)
        return found

    def _bind_operand(self, operand: Operand, value: Any, place: Place) -> None:
        """Every item is a tensor, or a number that may stand for one."""
        items: Iterable[tuple[Any, Place]] = [(value, place)]
        if operand.variadic and isinstance(place, int):
            items = [(item, place + index) for index, item in enumerate(value)]
            if len(value) == 1 and isinstance(value[0], tuple):
                items = [(item, place) for item in value[0]]
        elif value is None and operand.optional:
            return
        for item, where in items:
            if isinstance(item, Batch):
                raise self.call.error(
                    "E-SHAPE-002",
                    "the batch has no number that a tensor could be computed with",
                    where,
                    came=str(item),
                    help=BATCH_HELP,
                )
            if not isinstance(item, Tensor) and not is_number(item):
                help = _advice(self.call.name, item)
                raise self._kind_error(operand.name, where, "a tensor or a number", item, help)
            joins = operand.variadic and "axis" in self.operation.signature.keywords
            if joins and type(item) is int and _has_axes(items):
                help = f"options are given by keyword: `:axis {item}`"
                raise self._kind_error(operand.name, where, "tensors", item, help)
            self.arguments.append(Argument(operand, item, where))

    def _attribute(self, attribute: Attribute, value: Any, place: Place) -> Any:
        """The value in Python's terms, checked for its kind."""
        if value is None and attribute.default is None:
            return None
        converted = _convert(attribute, value)
        if converted is not None:
            return converted
        if any(isinstance(v, Batch) for v in (value if isinstance(value, tuple) else (value,))):
            raise self.call.error(
                "E-SHAPE-002",
                f"`{self.call.name}` needs whole numbers as `{attribute.name}`, and gets the batch",
                place,
                came=portray(value),
                help=BATCH_HELP,
            )
        expected, help = f"a {attribute.kind}", None
        if attribute.kind is Kind.WORD:
            expected = " or ".join([f":{choice}" for choice in attribute.choices])
        name = value.name if isinstance(value, Keyword) else value
        if isinstance(value, Keyword):
            help = did_you_mean(value.name, attribute.choices, ":")
        if attribute.kind is Kind.DTYPE and isinstance(name, str):
            help = f"it is written `{name}`" if name in list(DType) else "one of " + _DTYPES
        raise self._kind_error(attribute.name, place, expected, value, help)

    def _usage(self) -> str | None:
        """How the operation is called, where the call is by its own name."""
        own = self.call.name == self.operation.name
        return self.operation.signature.show(self.call.name) if own else None


def _has_axes(items: Iterable[tuple[Any, Place]]) -> bool:
    """Whether a tensor among them is no scalar, which no number can stand beside."""
    return any(isinstance(item, Tensor) and item.type.shape for item, _ in items)


def _common_dtype(numbers: Sequence[Number], allowed: frozenset[DType]) -> DType:
    """The dtype of numbers that no tensor gives one."""
    dtypes = {default_dtype(number) for number in numbers}
    for dtype in (DType.F32, DType.I32, DType.BOOL):
        if dtype in dtypes and dtype in allowed:
            return dtype
    return next(dtype for dtype in (DType.F32, DType.I32, DType.BOOL) if dtype in allowed)


def _convert(attribute: Attribute, value: Any) -> Any:
    """The attribute's value; None where it is of another kind."""
    match attribute.kind:
        case Kind.INTEGER if _is_whole(value) or isinstance(value, Batch):
            return value
        case Kind.NUMBER if _is_whole(value) or isinstance(value, float):
            return float(value)
        case Kind.BOOLEAN if isinstance(value, bool):
            return value
        case Kind.WORD if isinstance(value, Keyword) and value.name in attribute.choices:
            return value.name
        case Kind.STRING if type(value) is str:
            return value
        case Kind.DTYPE if isinstance(value, DType):
            return value
        case Kind.INTEGERS if _is_whole(value):
            return (value,)
        case Kind.INTEGERS if isinstance(value, tuple):
            return value if all(_is_whole(v) for v in value) else None
        case Kind.SHAPE if _is_whole(value) or isinstance(value, Batch):
            return (value,)
        case Kind.SHAPE if isinstance(value, tuple):
            return value if all(_is_whole(v) or isinstance(v, Batch) for v in value) else None
        case Kind.PADDING if isinstance(value, Keyword) and value.name in attribute.choices:
            return value.name
        case Kind.PADDING if _is_padding(value):
            return value
    return None


def _is_whole(value: object) -> bool:
    return type(value) is int


def _is_padding(value: Any) -> bool:
    """A whole number, or a list of whole numbers and pairs of them."""
    entries = value if isinstance(value, tuple) else (value,)
    numbers = [n for entry in entries for n in (entry if isinstance(entry, tuple) else (entry,))]
    pairs = all(len(entry) == 2 for entry in entries if isinstance(entry, tuple))
    return pairs and all(_is_whole(n) for n in numbers)


def _advice(name: str, value: object) -> str | None:
    """How to mend a call with a value that is no tensor."""
    if value is None and name in ("=", "!="):
        return "`(nil? x)` asks whether a value is nil"
    if isinstance(value, tuple) and any(isinstance(item, Tensor) for item in value):
        return "`concat` and `stack` make one tensor of several"
    if isinstance(value, tuple) and name in ("sum", "max", "min", "sort"):
        return f"`{name}-list` is for lists; `(tensor (list …))` is a literal tensor"
    if isinstance(value, tuple):
        return "`(tensor (list …))` is a literal tensor"
    if isinstance(value, Builtin | Function | Callable):
        return "call it: a function or model is applied as `(f x)`"
    return None
