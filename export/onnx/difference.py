"""How far an output of a runtime is from the reference's, and how far it may be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.schemas.errors import SexpgpuError

#: Exit status of an export whose numbers are wrong.
EXIT_CODE = 3

#: A difference that needs no explaining, as a share of the output's largest magnitude: 2^8
#: roundings of 2^-24 in f32 or 2^-53 in f64, one of bf16's 2^-9 and as much again.
PLAIN = {DType.F32: 2.0**-16, DType.F64: 2.0**-45, DType.BF16: 2.0**-8}

#: What is larger must be explained by rounding: at most so many times what the largest of some
#: evaluations with errors of rounding drawn at random is away from the one without.
EXPLAINED = 4.0


#: Elements that are compared at a time, so few that they stay in a core's cache.
_PIECE = 2**16


@dataclass
class Difference:
    """The largest absolute difference, the same as a share of the output's largest magnitude, and
    the share allowed.  Of whole numbers and booleans: how many differ, and their share."""

    absolute: float = 0.0
    relative: float = 0.0
    tolerance: float = 0.0

    def widen(self, other: Difference) -> None:
        """Keeps the larger of each."""
        self.absolute = max(self.absolute, other.absolute)
        self.relative = max(self.relative, other.relative)
        self.tolerance = max(self.tolerance, other.tolerance)


def compare(name: str, found: Array, want: Array, rounded: Iterable[Array]) -> Difference:
    """The difference of an output; `rounded` gives it as errors of rounding could make it.

    It is asked only where the difference is not plainly small.  Raises E-VERIFY-001 (exit status
    3) where rounding does not explain it.
    """
    if found.shape != want.shape or found.dtype != want.dtype:
        raise _wrong(
            name,
            f"{list(found.shape)} {found.dtype}",
            f"{list(want.shape)} {want.dtype}",
            "another shape or dtype",
        )
    if DType.of(want).is_float:
        return _compare_floats(name, found, want, rounded)
    return _compare_exactly(name, found, want, rounded)


def _compare_exactly(name: str, found: Array, want: Array, rounded: Iterable[Array]) -> Difference:
    """Whole numbers and booleans are equal, but where rounding decides between two."""
    differs = found != want
    count = int(np.sum(differs))
    difference = Difference(float(count), count / max(1, want.size))
    if count:
        for array in rounded:
            differs &= array == want
            if not differs.any():
                break
    if differs.any():
        place = tuple(int(i) for i in np.argwhere(differs)[0])
        raise _wrong(
            name,
            f"{found[place]} at {list(place)}, and {int(np.sum(differs))} of {want.size} elements "
            "differ for no reason of rounding",
            f"{want[place]}",
        )
    return difference


def _compare_floats(name: str, found: Array, want: Array, rounded: Iterable[Array]) -> Difference:
    """Floats are near, and infinite or NaN at the same places, but for what rounding explains."""
    scale = max(_largest(want), float(np.finfo(np.float32).tiny))
    tolerance = PLAIN[DType.of(want)]
    absolute = _largest_step(found, want)
    if absolute <= tolerance * scale:
        return Difference(absolute, absolute / scale, tolerance)
    absolute, elsewhere = _distance(found, want), _differs_in_kind(found, want)
    if elsewhere.any() or absolute > tolerance * scale:
        moved = 0.0
        for array in rounded:
            elsewhere &= ~_differs_in_kind(array, want)
            moved = max(moved, _distance(array, want))
            tolerance = max(tolerance, EXPLAINED * moved / scale)
            if absolute <= tolerance * scale and not elsewhere.any():
                break
    if elsewhere.any():
        raise _wrong(
            name,
            f"{int(np.sum(elsewhere))} elements that are infinite or NaN only in one of the two",
            "the same ones",
        )
    relative = absolute / scale
    if relative > tolerance:
        raise _wrong(
            name,
            f"a difference of {absolute:.3g}, {relative:.3g} of the largest magnitude",
            f"at most {tolerance:.3g} of it, which is what rounding explains",
        )
    return Difference(absolute, relative, tolerance)


def _pieces(*arrays: Array) -> Iterator[list[Array]]:
    """The arrays' elements as f64, some at a time."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _PIECE):
        yield [array[start : start + _PIECE].astype(np.float64) for array in flat]


def _largest(array: Array) -> float:
    """The largest magnitude that is finite; 0 where there is none."""
    largest = 0.0
    for (a,) in _pieces(array):
        least, most = _extremes(a)
        if not (math.isfinite(least) and math.isfinite(most)):
            least, most = _extremes(a[np.isfinite(a)])
        largest = max(largest, most, -least)
    return largest


def _largest_step(found: Array, want: Array) -> float:
    """The largest absolute difference; NaN where anything is not finite."""
    largest = 0.0
    for a, b in _pieces(found, want):
        with np.errstate(invalid="ignore"):
            least, most = _extremes(a - b)
        if not (math.isfinite(least) and math.isfinite(most)):
            return math.nan
        largest = max(largest, most, -least)
    return largest


def _extremes(array: Array) -> tuple[float, float]:
    """The least and the greatest of the elements and 0; NaN where one of them is."""
    return float(np.min(array, initial=0.0)), float(np.max(array, initial=0.0))


def _distance(found: Array, want: Array) -> float:
    """The largest absolute difference, where both are finite."""
    largest = 0.0
    for a, b in _pieces(found, want):
        both = np.isfinite(a) & np.isfinite(b)
        largest = max(largest, float(np.max(np.abs(a[both] - b[both]), initial=0.0)))
    return largest


def _differs_in_kind(found: Array, want: Array) -> Array:
    """Where, in row-major order, one is finite and the other is not, or they are not the same
    infinity or NaN."""
    differs = np.zeros(want.size, np.bool_)
    for index, (a, b) in enumerate(_pieces(found, want)):
        finite = np.isfinite(a) & np.isfinite(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        differs[index * _PIECE : index * _PIECE + a.size] = ~finite & ~same
    return differs


def _wrong(name: str, came: str, expected: str, what: str = "other numbers") -> SexpgpuError:
    return SexpgpuError(
        "E-VERIFY-001",
        f"ONNX Runtime gives {what} for `{name}` than the model means",
        came=came,
        expected=expected,
        help="nothing was written; please report the program. --no-verify writes it all the same",
        exit_code=EXIT_CODE,
    )
