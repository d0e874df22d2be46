"""What an operation takes: its tensors and its attributes, in the order in which a call gives them.

One description serves the language (binding a call), model.json (reading attributes back) and the
reference page.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sexpgpu.export.graph.types import ANY, DType


class Kind(enum.StrEnum):
    """What an attribute's value is, in Python."""

    INTEGER = "whole number"  # int
    NUMBER = "number"  # float
    BOOLEAN = "boolean"  # bool
    WORD = "keyword"  # str, one of `choices`; written :tanh in the language
    STRING = "string"  # str
    DTYPE = "dtype"  # DType
    INTEGERS = "list of whole numbers"  # tuple[int, ...]; one number stands for a list of it
    SHAPE = "list of dimensions"  # tuple[int | Batch, ...]; one dimension stands for a list of it
    ARRAY = "constant"  # NumPy array
    GRAPH = "function"  # Graph, the body of a scan
    NAMES = "list of names"  # tuple[str, ...]
    #: int, a str of `choices`, or a tuple of int and of (int, int): both sides alike, or each
    PADDING = "number, keyword, or list of numbers and of pairs (before after)"


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()

GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor argument.

    Operands of one `group` have one dtype; those of the group "" need not.  `optional` ones may be
    nil or left out and stand after the others; which of them a node has, its attribute `given`
    says.  A `variadic` one is a list of tensors and stands last.  A `keyword` operand is written
    `:name tensor`.
    """

    name: str
    dtypes: frozenset[DType] = ANY
    group: str = "T"
    optional: bool = False
    variadic: bool = False
    keyword: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """An argument whose value is known while the program is traced.

    `nil` (None) is allowed where the default is None.
    """

    name: str
    kind: Kind
    default: Any = REQUIRED
    keyword: bool = True
    choices: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


Parameter = Operand | Attribute


@dataclass(frozen=True, slots=True)
class Signature:
    """Operands and attributes in the order of a call: positional ones first."""

    parameters: tuple[Parameter, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(p for p in self.parameters if isinstance(p, Operand))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of a node, `given` included where there are optional operands."""
        attributes = tuple(p for p in self.parameters if isinstance(p, Attribute))
        if any(operand.optional for operand in self.operands):
            return (*attributes, Attribute(GIVEN, Kind.NAMES, ()))
        return attributes

    @property
    def positional(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if not p.keyword)

    @property
    def keywords(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters if p.keyword}

    def present(self, given: Sequence[str], count: int) -> tuple[Operand, ...] | None:
        """The operand of each of a node's `count` inputs; None where the count does not fit."""
        present = [o for o in self.operands if not o.optional or o.name in given]
        if present and present[-1].variadic:
            present += [present[-1]] * (count - len(present))
            present = present[:count] if count < len(present) else present
            least = sum(not o.variadic and not o.optional for o in self.operands)
            return tuple(present) if count >= least else None
        return tuple(present) if len(present) == count else None

    def show(self, name: str) -> str:
        """As the reference writes it: `(softmax x &key (axis -1))`."""
        words: Sequence[str] = [
            _show(p) for p in (*self.positional, *(["&key"] if self.keywords else []))
        ] + [_show(p) for p in self.keywords.values()]
        return "(" + " ".join([name, *words]) + ")"


def signature(*parameters: Parameter) -> Signature:
    return Signature(parameters)


def show_attribute(value: Any) -> str:
    """An attribute's value as the language writes it."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "(list" + "".join(f" {show_attribute(v)}" for v in value) + ")"
    if isinstance(value, str) and not isinstance(value, DType):
        return f":{value}"
    return str(value)


def _show(parameter: Parameter | str) -> str:
    if isinstance(parameter, str):
        return parameter
    if isinstance(parameter, Operand):
        name = f"({parameter.name} …)" if parameter.variadic else parameter.name
        return f"({parameter.name} nil)" if parameter.optional else name
    if parameter.required:
        return parameter.name
    return f"({parameter.name} {show_attribute(parameter.default)})"
