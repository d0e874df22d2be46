"""A loader's records: how many there are, and any of them as arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction

from sexpgpu.export.graph.types import Array, TensorType
from sexpgpu.schemas.errors import SexpgpuError

Split = tuple[float, float]


class Dataset(ABC):
    """Records 0 to `count` - 1, each with every one of `fields`.

    Data errors are E-DATA-002 to E-DATA-011; opening finds what it can, and `batch` the rest.
    """

    count: int
    fields: Mapping[str, TensorType]
    #: How many tokens a record has, where records are text.
    tokens: int | None = None

    @abstractmethod
    def batch(self, indices: Sequence[int] | Array) -> dict[str, Array]:
        """The records of these numbers, in their order, which may repeat.

        Arrays of the fields' dtypes and shapes, the batch first, that the caller may keep.  Raises
        E-DATA-003, E-DATA-005 or E-DATA-006 where one of the records is damaged.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """What tells this data from other data, wherever it stands; the same on every machine.

        A small file is hashed whole, of a large one its size and samples.  A `:split` or another
        option of the loader is no part of it.
        """

    def evaluation(self) -> range:
        """The numbers of the records that an evaluation reads, in order."""
        return range(self.count)


def portion(total: int, split: Split | None) -> range:
    """The part of `total` things that `:split` takes, by position.

    Fractions are the decimals that they are written as, and both ends are rounded down: parts with
    an end in common neither overlap nor leave a thing out.
    """
    begin, end = (int(Fraction(repr(part)) * total) for part in split or (0.0, 1.0))
    return range(begin, end)


def part_of(total: int, split: Split | None, place: str, what: str = "records") -> range:
    """The same; raises E-DATA-007 where nothing is left."""
    part = portion(total, split)
    if part:
        return part
    if not total or split is None:
        raise SexpgpuError(
            "E-DATA-007", f"there are no {what}", place=place, help="name a file with data"
        )
    raise SexpgpuError(
        "E-DATA-007",
        f":split takes none of the {what}",
        place=place,
        came=f"{total:,} {what}, of which (list {split[0]} {split[1]}) are taken",
        help="take a wider :split, or more data",
    )
