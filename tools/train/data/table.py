"""The columns of a CSV file as arrays."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TextIO

import numpy as np

from sexpgpu.export.graph.types import Array, TensorType, concrete, elements
from sexpgpu.export.language.loaders import Loader
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.arrays import ArraysDataset
from sexpgpu.tools.train.data.cells import numbers
from sexpgpu.tools.train.data.dataset import part_of
from sexpgpu.tools.train.data.files import DataFile, require_memory, unreadable

_LINE_LIMIT = 16 << 20
_ROWS = 8192
_HEADER_SHOWN = 12


def open_table(loader: Loader) -> ArraysDataset:
    """The data of a `csv` loader: the columns that its fields name, read whole.

    The first line names the columns; a field of several numbers, `:x (list f32 4)`, reads the
    columns `x.0` to `x.3` (or `x0` …, `x_0` …), row-major.  Lines with nothing on them are passed
    over.  Raises E-DATA-002, E-DATA-003, E-DATA-004, E-DATA-005, E-DATA-006, E-DATA-007 and
    E-DATA-011.
    """
    file = DataFile(str(loader.file))
    try:
        with open(file.path, encoding="utf-8-sig", newline="") as text:
            table = _Table(text, file, loader)
            arrays = table.arrays()
    except OSError as error:
        raise unreadable(str(file), error) from None
    except UnicodeDecodeError as error:
        raise SexpgpuError(
            "E-DATA-003",
            "the table is not UTF-8",
            place=str(file),
            came=f"the byte {error.object[error.start]}",
            help="save it as UTF-8",
        ) from None
    total = len(next(iter(arrays.values())))
    part = part_of(total, loader.options.get("split"), str(file))
    return ArraysDataset(file, loader.fields, arrays, part, "csv", mapped=False)


class _Table:
    """A CSV file that is read once, from its header to its end."""

    def __init__(self, text: TextIO, file: DataFile, loader: Loader) -> None:
        self._file = file
        self._fields = loader.fields
        self._separator = str(loader.options["separator"])
        self._reader = csv.reader(
            _lines(text, file), delimiter=self._separator, strict=True, skipinitialspace=True
        )
        first = next(self._rows(), (1, []))[1]
        self._header = [cell.strip() for cell in first]
        self._columns = {name: self._places(name, type) for name, type in self._fields.items()}

    def arrays(self) -> dict[str, Array]:
        """Every field's values, the records along axis 0."""
        found: dict[str, list[Array]] = {name: [] for name in self._fields}
        lines: list[int] = []
        rows: list[Sequence[str]] = []
        read = 0
        row_bytes = sum(elements(t.shape) * t.dtype.itemsize for t in self._fields.values())
        for line, row in self._rows():
            if len(row) != len(self._header):
                raise self._fail(
                    "E-DATA-003",
                    "a row has another number of cells than the header",
                    line,
                    came=f"{len(row)} cells",
                    expected=f"{len(self._header)}",
                    help="put quotes around a cell with a separator in it",
                )
            lines.append(line)
            rows.append(row)
            if len(rows) == _ROWS:
                self._convert(lines, rows, found)
                read += len(rows)
                require_memory(read * row_bytes, str(self._file), "save it as .npy or .npz")
                lines, rows = [], []
        self._convert(lines, rows, found)
        return {name: np.concatenate(pieces) for name, pieces in found.items()}

    def _convert(
        self, lines: Sequence[int], rows: Sequence[Sequence[str]], found: Mapping[str, list[Array]]
    ) -> None:
        for name, type in self._fields.items():
            places = self._columns[name]
            values = np.empty((len(rows), len(places)), type.dtype.numpy)
            for index, place in enumerate(places):
                cells = [row[place] for row in rows]
                values[:, index] = numbers(cells, type.dtype, self._places_of(lines, place))
            found[name].append(values.reshape(len(rows), *concrete(type.shape, 1)[1:]))

    def _places_of(self, lines: Sequence[int], column: int) -> Callable[[int], str]:
        """Where the cell of a column in a row is, for people."""
        return lambda row: f"{self._file}:{lines[row]}, column `{self._header[column]}`"

    def _places(self, name: str, type: TensorType) -> list[int]:
        """The columns of a field, by where they stand in a row."""
        if type.rank == 1:
            return [self._place(name, name)]
        count = elements(type.shape)
        if count > len(self._header):
            raise self._missing(name, f"{count:,} columns, `{name}.0` to `{name}.{count - 1}`")
        marks = (mark for mark in (".", "", "_") if f"{name}{mark}0" in self._header)
        mark = next(marks, ".")
        return [self._place(name, f"{name}{mark}{index}") for index in range(count)]

    def _place(self, field: str, column: str) -> int:
        if (times := self._header.count(column)) == 1:
            return self._header.index(column)
        if times:
            raise self._fail(
                "E-DATA-004",
                f"two columns are called `{column}`",
                1,
                help="rename one of them",
            )
        raise self._missing(field, f"a column `{column}`")

    def _missing(self, field: str, expected: str) -> SexpgpuError:
        shown = ", ".join(self._header[:_HEADER_SHOWN])
        help = did_you_mean(field, self._header)
        if len(self._header) == 1:
            others = [mark for mark in ";\t,|" if mark in self._header[0]]
            if others:
                help = f'another separator? `:separator "{others[0]}"`'.replace("\t", "\\t")
        elif self._header and all(_is_number(cell) for cell in self._header):
            help = "the first line names the columns: write one before the numbers"
        return self._fail(
            "E-DATA-004",
            f"the table has no column for the field `{field}`",
            1,
            came=shown + (" …" if len(self._header) > _HEADER_SHOWN else ""),
            expected=expected,
            help=help,
        )

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Every row that has cells, with the line it begins at."""
        while True:
            line = self._reader.line_num + 1
            try:
                row = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise self._fail(
                    "E-DATA-003",
                    f"the table is malformed: {error}",
                    line,
                    help='look for a quote that is never closed; within quotes `"` is written `""`',
                ) from None
            if row:
                yield line, row

    def _fail(
        self,
        code: str,
        message: str,
        line: int,
        *,
        came: str | None = None,
        expected: str | None = None,
        help: str | None = None,
    ) -> SexpgpuError:
        place = f"{self._file}:{line}"
        return SexpgpuError(code, message, place=place, came=came, expected=expected, help=help)


def _lines(text: TextIO, file: DataFile) -> Iterator[str]:
    """Lines of a length that no table has need of: other files are refused, not read whole."""
    while line := text.readline(_LINE_LIMIT):
        if len(line) == _LINE_LIMIT:
            raise SexpgpuError(
                "E-DATA-003",
                f"the file has a line of over {_LINE_LIMIT:,} characters, and is no table",
                place=str(file),
            )
        yield line


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
