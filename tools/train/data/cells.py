"""A column's cells as numbers of one dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.schemas.errors import SexpgpuError

_BOOLEANS = {"0": False, "1": True, "false": False, "true": True}
_LABELS_SHOWN = 4
_CELL_SHOWN = 60


def numbers(cells: Sequence[str], dtype: DType, place: Callable[[int], str]) -> Array:
    """The cells in `dtype`: floats rounded to nearest even, whole numbers and booleans exact.

    `place` says where a cell is, by its index.  Raises E-DATA-005 for a cell that is no number of
    the dtype and E-DATA-006 for one that is not finite.
    """
    try:
        values = _parsed(cells, dtype)
    except (ValueError, OverflowError, KeyError):
        raise _first_wrong(cells, dtype, place) from None
    if dtype.is_float and not np.isfinite(values).all():
        raise _first_wrong(cells, dtype, place)
    return values


def _parsed(cells: Sequence[str], dtype: DType) -> Array:
    """Raises ValueError, OverflowError or KeyError where a cell is no value of the dtype."""
    if dtype is DType.BOOL:
        return np.array([_BOOLEANS[cell.strip().lower()] for cell in cells], np.bool_)
    # Python reads 1_000 and digits of every script as numbers; tables are written in ASCII.
    if any("_" in cell or not cell.isascii() for cell in cells):
        raise ValueError
    if dtype.is_integer:
        return np.array([_whole(cell) for cell in cells], dtype.numpy)
    with np.errstate(over="ignore"):
        return np.array([float(cell) for cell in cells], np.float64).astype(dtype.numpy)


def _whole(cell: str) -> int:
    """A whole number, which some programs write as 3.0."""
    try:
        return int(cell)
    except ValueError:
        value = float(cell)
        if not value.is_integer():
            raise
        return int(value)


def _first_wrong(cells: Sequence[str], dtype: DType, place: Callable[[int], str]) -> SexpgpuError:
    for index, cell in enumerate(cells):
        try:
            value = _parsed([cell], dtype)
        except (ValueError, OverflowError, KeyError):
            return _no_value(cells, cell, dtype, place(index))
        if dtype.is_float and not np.isfinite(value).all():
            return _not_finite(cell, dtype, place(index))
    raise AssertionError("each cell alone was a number")


def _not_finite(cell: str, dtype: DType, place: str) -> SexpgpuError:
    if np.isfinite(float(cell)) or any(digit.isdigit() for digit in cell):
        return SexpgpuError(
            "E-DATA-005",
            f"a number is too large for {dtype}",
            place=place,
            came=_shown(cell),
            help="declare the field as f64, or scale the column",
        )
    return SexpgpuError(
        "E-DATA-006",
        "the table has a number that is not finite",
        place=place,
        came=_shown(cell),
        expected="a finite number",
        help="leave the row out or put a number there",
    )


def _no_value(cells: Sequence[str], cell: str, dtype: DType, place: str) -> SexpgpuError:
    stripped = cell.strip()
    message = f"a cell is no {dtype}" if stripped else "a cell is empty"
    expected = "a number such as 12 or -0.5"
    help = "a decimal point is a dot, and thousands have no mark"
    if dtype is DType.BOOL:
        expected, help = "true, false, 1 or 0", "declare other numbers as i32"
    elif dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        expected = f"a whole number from {limits.min} to {limits.max}"
        wider = (d for d in (DType.I64, DType.F32, DType.F64) if _is_value(cell, d))
        if (other := next(wider, None)) is not None:
            help = f"declare the field as {other}"
    if not stripped:
        help = "leave the row out or put a value there"
    elif stripped[0].isalpha() and dtype is not DType.BOOL:
        words = sorted({other.strip() for other in cells if other.strip()[:1].isalpha()})
        numbered = ", ".join(f"{n} for {_shown(w)}" for n, w in enumerate(words[:_LABELS_SHOWN]))
        more = " …" if len(words) > _LABELS_SHOWN else ""
        help = f"labels are whole numbers from 0: write {numbered}{more}"
    return SexpgpuError(
        "E-DATA-005", message, place=place, came=_shown(cell), expected=expected, help=help
    )


def _is_value(cell: str, dtype: DType) -> bool:
    try:
        return bool(np.isfinite(_parsed([cell], dtype)).all())
    except (ValueError, OverflowError):
        return False


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _CELL_SHOWN else cell[:_CELL_SHOWN] + "…")
