"""Records along the first axis of arrays, in a file or in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sexpgpu.export.graph.types import Array, DType, TensorType, concrete, format_shape
from sexpgpu.export.language.loaders import Loader
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.export.storage.sources import open_source
from sexpgpu.export.storage.weight_source import WeightSource, widened
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import PIECE
from sexpgpu.tools.train.data.dataset import Dataset, part_of
from sexpgpu.tools.train.data.files import DataFile, require_memory, unreadable

_CHECKED_UP_TO = 256 << 20
_FLOATS = (DType.BF16, DType.F32, DType.F64)


class ArraysDataset(Dataset):
    """A record is what each array has at one place of axis 0, in the field's dtype.

    `arrays` have the records of the whole file, of which `part` is read; `origin` is their
    fingerprint.  Values are held against their fields in every batch, and in all of the part at
    once where this takes no time.
    """

    def __init__(
        self,
        file: DataFile,
        fields: Mapping[str, TensorType],
        arrays: Mapping[str, Array],
        part: range,
        kind: str,
        mapped: bool,
    ) -> None:
        self.fields = fields
        self.count = len(part)
        self._file = file
        self._arrays = arrays
        self._start = part.start
        self._kind = kind
        self._mapped = mapped
        row = sum(array.nbytes // max(len(array), 1) for array in arrays.values())
        if row * self.count <= _CHECKED_UP_TO:
            step = max(1, PIECE // max(row, 1))
            for start in range(0, self.count, step):
                self.batch(range(start, min(start + step, self.count)))

    def batch(self, indices: Sequence[int] | Array) -> dict[str, Array]:
        if self._mapped:
            self._file.check()
        places = self._start + np.asarray(indices, np.int64)
        return {
            name: self._values(name, type, self._arrays[name][places], places)
            for name, type in self.fields.items()
        }

    def fingerprint(self) -> str:
        return f"{self._kind}:{self._file.fingerprint()}"

    def _values(self, name: str, type: TensorType, stored: Array, places: Array) -> Array:
        """What an array has at `places`, in its field's dtype."""
        dtype = type.dtype
        wrong = None
        if dtype is DType.BOOL:
            wrong = stored.view(np.uint8) > 1
        elif dtype.is_integer and not np.can_cast(stored.dtype, dtype.numpy):
            limits = np.iinfo(dtype.numpy)
            wrong = (stored < limits.min) | (stored > limits.max)
        if wrong is not None and wrong.any():
            where, at = _first(wrong, places)
            value = stored.view(np.uint8)[at] if dtype is DType.BOOL else stored[at]
            raise SexpgpuError(
                "E-DATA-005",
                f"a value of the field `{name}` does not fit {dtype}",
                place=str(self._file),
                came=f"{value} in {where}",
                expected="0 or 1" if dtype is DType.BOOL else f"{limits.min} to {limits.max}",
                help=None if dtype is DType.BOOL else f"declare the field as i64: `:{name} i64`",
            )
        values = stored.astype(dtype.numpy)
        if dtype.is_float:
            finite = np.isfinite(values)
            if not finite.all():
                where, at = _first(~finite, places)
                raise SexpgpuError(
                    "E-DATA-006",
                    f"the field `{name}` has a number that is not finite",
                    place=str(self._file),
                    came=f"{values[at]} in {where}",
                    expected="finite numbers",
                    help="leave the record out of the file or put a number there",
                )
        return values


def _first(wrong: Array, places: Array) -> tuple[str, tuple[int, ...]]:
    """The first that is marked, for people and as an index."""
    at = tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
    inside = f" at {list(at[1:])}" if at[1:] else ""
    return f"record {places[at[0]]:,} (from 0){inside}", at


def open_arrays(loader: Loader) -> ArraysDataset:
    """The data of an `arrays` loader, mapped where its file has it uncompressed.

    Raises E-DATA-002, E-DATA-003, E-DATA-004, E-DATA-005, E-DATA-006, E-DATA-007 and E-DATA-011.
    """
    file = DataFile(str(loader.file))
    try:
        source = open_source(file.path)
        total = _checked_length(source, loader.fields, str(file))
        part = part_of(total, loader.options.get("split"), str(file))
        memory = sum(source.memory(name) for name in loader.fields)
        require_memory(memory, str(file), "save it with numpy.savez, uncompressed: it is mapped")
        arrays = {name: np.asarray(source.stored(name)) for name in loader.fields}
    except OSError as error:
        raise unreadable(str(file), error) from None
    except SexpgpuError as error:
        if error.code.startswith("E-DATA"):
            raise
        raise _damaged(file, error) from None
    return ArraysDataset(file, loader.fields, arrays, part, "arrays", mapped=True)


def _damaged(file: DataFile, error: SexpgpuError) -> SexpgpuError:
    """E-DATA-003: what the reader of weights says, of data."""
    return SexpgpuError(
        "E-DATA-003",
        "the arrays cannot be read: "
        + error.message.removeprefix("the :load file cannot be read: "),
        place=str(file),
        came=error.came,
        expected=error.expected,
        help=error.help or "write the file again: it may be truncated",
    )


def _checked_length(source: WeightSource, fields: Mapping[str, TensorType], place: str) -> int:
    """How many records the arrays have, once every field was found to be as it is declared."""
    keys = source.keys()
    lengths: dict[str, int] = {}
    for name, type in fields.items():
        if name not in keys:
            shown = ", ".join(keys[:8]) + (" …" if len(keys) > 8 else "")
            raise SexpgpuError(
                "E-DATA-004",
                f"the file has no array `{name}`",
                place=place,
                expected=f"one of {shown}" if keys else "a file with arrays",
                help=did_you_mean(name, keys, ":")
                or ("the array of a .npy file is called `array`" if keys == ["array"] else None),
            )
        have, shape = source.describe(name)
        if not shape or shape[1:] != concrete(type.shape, 1)[1:]:
            record = f"a record of {list(shape[1:])}" if shape else "rank 0, so it has no records"
            declared = " ".join(map(str, (type.dtype, *shape[1:])))
            raise SexpgpuError(
                "E-DATA-004",
                f"the array `{name}` has another shape than its field",
                place=place,
                came=f"{list(shape)} {have}: {record}",
                expected=f"{format_shape(type.shape)}",
                help=f":fields (list :{name} (list {declared}) …), and reshape it in `prepare`",
            )
        if not _holds(type.dtype, have):
            raise _wrong_dtype(name, type.dtype, have, place)
        lengths[name] = shape[0]
    if len(set(lengths.values())) > 1:
        raise SexpgpuError(
            "E-DATA-004",
            "the arrays have different numbers of records",
            place=place,
            came=", ".join(f"{name}: {length:,}" for name, length in lengths.items()),
            expected="one length along axis 0",
            help="name in :fields only those that belong together",
        )
    return next(iter(lengths.values()))


def _holds(dtype: DType, stored: str) -> bool:
    """Whether a field can have what is stored: exactly, a whole number where each one fits."""
    wide = widened(stored)
    if dtype is DType.BOOL or wide is DType.BOOL:
        return wide is dtype
    if stored[0] in "iu" and stored[1:].isdecimal():
        width = int(stored[1:])
        most = {DType.BF16: 8, DType.F32: 16, DType.F64: 32}
        return dtype.is_integer or width <= most[dtype]
    return dtype in _FLOATS and wide in _FLOATS and _FLOATS.index(dtype) >= _FLOATS.index(wide)


def _wrong_dtype(name: str, dtype: DType, stored: str, place: str) -> SexpgpuError:
    wide = widened(stored)
    return SexpgpuError(
        "E-DATA-004",
        f"the field `{name}` does not hold the values of its array exactly",
        place=place,
        came=f"{stored} in the file",
        expected=f"what {dtype} holds",
        help="sexpgpu has no dtype for these values; convert the file"
        if wide is None
        else f"declare the field as {wide} and `(cast x {dtype})` it in `prepare`, or save the "
        f"array as {dtype}",
    )
