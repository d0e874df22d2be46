"""model.json, version 1: the model alone as a typed graph.

A value is named `@input`, `$weight.path`, or by the node that makes it: `n12`, and `n12:1` for the
second result of a node that has several.  A dimension is a whole number, `"batch"`, or a multiple
such as `"16*batch"`.  What JSON has no number for is written as text: `"inf"`, `"-inf"`, `"nan"`,
and a NaN of other bits as `"nan:7fc00001"`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from sexpgpu.schemas.precision import Precision

VERSION = 1

DTypeName: TypeAlias = Literal["f32", "f64", "bf16", "i32", "i64", "bool"]
Dimension: TypeAlias = (
    Annotated[int, Meta(ge=0, le=2**53)]
    | Annotated[str, Meta(pattern=r"^([1-9][0-9]{0,14}\*)?batch$")]
)
Shape: TypeAlias = Annotated[list[Dimension], Meta(max_length=16)]
FixedShape: TypeAlias = Annotated[list[Annotated[int, Meta(ge=0, le=2**53)]], Meta(max_length=16)]
ValueName: TypeAlias = Annotated[
    str,
    Meta(pattern=r"^(@.+|\$.+|n[0-9]{1,9}(:[0-9]{1,4})?)$", description="@input, $weight or n12"),
]
NodeName: TypeAlias = Annotated[str, Meta(pattern=r"^n[0-9]{1,9}$")]


class Tensor(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The type of a further result of a node."""

    shape: Shape
    dtype: DTypeName


class Input(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An input: a caller gives it, one record along each batch dimension."""

    name: Annotated[str, Meta(min_length=1)]
    shape: Shape
    dtype: DTypeName


class Output(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An output and the value that it is."""

    name: Annotated[str, Meta(min_length=1)]
    shape: Shape
    dtype: DTypeName
    value: ValueName


class Weight(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A weight; a frozen one names the file that it is read from."""

    shape: FixedShape
    dtype: DTypeName
    file: str | None = None
    key: str | None = None
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


class Node(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One application of an operation; `shape` and `dtype` are its first result's."""

    id: NodeName
    op: str
    inputs: list[ValueName]
    shape: Shape
    dtype: DTypeName
    more: list[Tensor] = []
    attributes: dict[str, Any] = {}
    source: str = ""
    scope: str = ""


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The graph that a scan runs once a step; it stands in the scan's attribute `body`."""

    inputs: list[Input]
    nodes: list[Node]
    outputs: list[Output]


class Model(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole document."""

    version: Literal[1] = 1
    producer: str
    checkpoint: str | None = None
    step: Annotated[int, Meta(ge=0)] | None = None
    slug: str | None = None
    precision: Precision = "f32"
    weights: dict[str, Weight]
    inputs: list[Input]
    outputs: list[Output]
    nodes: list[Node]
