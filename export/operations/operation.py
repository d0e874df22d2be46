"""What an operation is, and the table of all of them.

An operation is one class that says everything about it: its signature, its shape and dtype rule,
its meaning in NumPy (the reference that all else is tested against), its ONNX form, and its axis
rule, which says what becomes of an axis of an input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import (
    MAXIMUM_ELEMENTS,
    MAXIMUM_RANK,
    Array,
    Batch,
    DType,
    Shape,
    TensorType,
    elements,
    format_shape,
)
from sexpgpu.export.operations.signature import GIVEN, Kind, Operand, Signature
from sexpgpu.schemas.errors import SexpgpuError

if TYPE_CHECKING:
    from sexpgpu.export.onnx.lowering import Lowering, OnnxValue


@dataclass(frozen=True, slots=True)
class Apart:
    """The input's axis is this axis of the result, position for position, and position i of the
    result reads nothing of the input but its position i.

    The positions of an axis of `m*batch` are its records' blocks: record i has the m elements from
    i*m on, and m may differ between the input and the result.
    """

    axis: int


@dataclass(frozen=True, slots=True)
class Causal:
    """The input's axis is this axis of the result, and position i reads positions up to i."""

    axis: int


@dataclass(frozen=True, slots=True)
class Whole:
    """Positions are mixed, or the axis is gone."""


@dataclass(frozen=True, slots=True)
class Unread:
    """This result does not read the input at all."""


WHOLE = Whole()
UNREAD = Unread()
Fate: TypeAlias = Apart | Causal | Whole | Unread


@dataclass(frozen=True, slots=True)
class Rows:
    """A request to compute an operation for some positions of one axis of its only result.

    `inputs` are the operands, of which those that have the axis were already reduced to `count`
    positions; `positions` holds which, i32 of shape [batch, count]; `axis` is the result's axis.
    `input_axes` gives, per operand, the axis that was reduced (None: it has no such axis and was
    left as it is); `causal` whether an operand that was left as it is has the axis in causal order.
    """

    inputs: tuple[Value, ...]
    input_axes: tuple[int | None, ...]
    result: TensorType
    axis: int
    count: int
    positions: Value
    causal: bool

    @property
    def shape(self) -> Shape:
        """The shape of the result with `count` positions along the axis."""
        shape = self.result.shape
        return (*shape[: self.axis], self.count, *shape[self.axis + 1 :])


class Operation(ABC):
    """One operation of the language, of the graph and of model.json, under one name.

    The class's docstring is its entry in the reference.  A subclass is made an operation by
    `@operation`, which puts its one instance into `OPERATIONS`.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    signature: ClassVar[Signature]
    #: Rules that a call must keep, numbered in the reference and cited by tests.
    constraints: ClassVar[tuple[str, ...]] = ()
    #: An expression of the language and what it gives, shown in the reference and tested.
    example: ClassVar[tuple[str, str]]
    #: Whether ONNX runtimes do it on bf16 as it is; all others go through f32 and round.
    moves_data: ClassVar[bool] = False
    #: How to mend a call with tensors of a dtype for which it has no meaning.
    dtype_help: ClassVar[str] = "convert it with `cast`"
    #: Whether no number of its results is -inf, whatever it is given.
    bounded_below: ClassVar[bool] = False
    #: Whether no number of its results is below 0.
    never_negative: ClassVar[bool] = False
    #: Whether it draws random numbers, so that only training may use it.
    random: ClassVar[bool] = False
    #: Whether it is its operand wherever nothing is trained.
    only_trains: ClassVar[bool] = False
    #: Whether its several tensor operands broadcast, so that numbers may stand for tensors.
    elementwise: ClassVar[bool] = False
    #: Whether the language gives its results as a list even where there is but one.
    gives_list: ClassVar[bool] = False

    @abstractmethod
    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        """The types of the results.

        Dtypes, and that attributes are of their kinds, were checked; this checks the rest, and
        raises through the functions of `rules`.
        """

    @abstractmethod
    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        """The meaning: the results as NumPy arrays of exactly the inferred types.

        Attributes hold no symbolic dimension any more.
        """

    @abstractmethod
    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        """The ONNX names of the results, after adding the nodes that compute them.

        Unless `moves_data`, bf16 never comes here: operands were widened to f32 and `results` say
        f32, and what is returned is rounded.
        """

    @abstractmethod
    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        """What becomes of an axis of input number `operand`, for each result."""

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        """Inputs and attributes that compute only some positions; None where that can't be done.

        As it stands it fits operations whose attributes do not speak of the axis that is reduced.
        """
        return None if rows.causal else (rows.inputs, attributes)

    def varies_along(self, attributes: Attributes, result: TensorType) -> frozenset[int]:
        """The axes of the result along which values differ though no operand has them.

        `iota` makes such values; along the batch they would tell records by their place.
        """
        return frozenset()

    def operand_names(self, attributes: Attributes, count: int) -> list[str]:
        """The name of the operand that each of a node's inputs is."""
        return [operand.name for operand in self._present(attributes, count)]

    def named(self, inputs: Sequence[Any], attributes: Attributes) -> dict[str, Any]:
        """Inputs (values, types, arrays or ONNX values) by the names of their operands."""
        return dict(zip(self.operand_names(attributes, len(inputs)), inputs, strict=True))

    def infer_checked(
        self, inputs: Sequence[TensorType], attributes: Attributes
    ) -> tuple[TensorType, ...]:
        """`infer` after checking what all operations have in common."""
        groups: dict[str, tuple[str, DType]] = {}
        for operand, type in zip(self._present(attributes, len(inputs)), inputs, strict=True):
            if type.dtype not in operand.dtypes:
                raise SexpgpuError(
                    "E-DTYPE-002",
                    f"`{self.name}` has no meaning for {type.dtype}",
                    came=f"`{operand.name}` is {type}",
                    expected=", ".join(d for d in DType if d in operand.dtypes),
                    help=self.dtype_help,
                )
            if not operand.group:
                continue
            first = groups.setdefault(operand.group, (operand.name, type.dtype))
            if first[1] is not type.dtype:
                both = (first[1], type.dtype)
                wider = next((dtype for dtype in both if dtype.is_float), first[1])
                raise SexpgpuError(
                    "E-DTYPE-001",
                    f"`{self.name}` takes tensors of one dtype",
                    came=f"{first[1]} and {type.dtype}",
                    help=f"convert one of them: `(cast x {wider})`",
                )
        for attribute in self.signature.attributes:
            if attribute.kind is Kind.INTEGER and isinstance(attributes.get(attribute.name), Batch):
                raise SexpgpuError(
                    "E-SHAPE-002",
                    f"`{self.name}` needs a number for `{attribute.name}`, and it is the batch",
                    came=str(attributes[attribute.name]),
                    help="the model is traced once for any number of records",
                )
        results = tuple(self.infer(inputs, attributes))
        for result in results:
            check_size(f"`{self.name}`", result.shape)
        return results

    def _present(self, attributes: Attributes, count: int) -> tuple[Operand, ...]:
        present = self.signature.present(attributes.get(GIVEN, ()), count)
        if present is None:
            raise SexpgpuError(
                "E-CALL-002",
                f"`{self.name}` does not take {count} tensors",
                expected=self.signature.show(self.name),
            )
        return present


def check_size(what: str, shape: Shape) -> None:
    """E-SHAPE-003 for a shape of too many axes, or of too many elements for one record."""
    if len(shape) > MAXIMUM_RANK:
        raise SexpgpuError(
            "E-SHAPE-003",
            f"{what} would make a tensor of {len(shape)} axes",
            expected=f"at most {MAXIMUM_RANK}",
        )
    # An axis of length 0 leaves no elements, but the others must still be countable.
    count = elements([dimension or 1 for dimension in shape])
    if count > MAXIMUM_ELEMENTS:
        raise SexpgpuError(
            "E-SHAPE-003",
            f"{what} would make a tensor of {count:,} elements",
            came=format_shape(shape),
            expected=f"at most {MAXIMUM_ELEMENTS:,} elements for one record",
        )


OPERATIONS: dict[str, Operation] = {}


def operation(cls: type[Operation]) -> type[Operation]:
    """Puts the class's one instance into the table."""
    if cls.name in OPERATIONS:
        raise ValueError(f"the operation {cls.name} is defined twice")
    OPERATIONS[cls.name] = cls()
    return cls


def all_operations() -> Mapping[str, Operation]:
    """Every operation by name, in the order of the families."""
    # The families register themselves when they are imported.
    import sexpgpu.export.operations.families  # noqa: F401

    return OPERATIONS
