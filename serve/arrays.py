"""Arrays as a model takes them: their names, shapes and dtypes, checked and never rounded."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve.protocol import TensorSpec


def bind_arguments(
    specs: Sequence[TensorSpec], positional: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """The value for each input, from positional and named arguments.  Raises E-CALL-010."""
    names = [spec.name for spec in specs]
    if len(positional) > len(names):
        raise _wrong(
            f"the model takes {len(names)} inputs", f"{len(positional)} arrays", ", ".join(names)
        )
    if any(isinstance(value, Mapping) for value in positional):
        raise _wrong("an input is no array", "a dict", None, "`model(**inputs)` takes one by names")
    values = dict(zip(names, positional, strict=False))
    for name, value in named.items():
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            help = f"did you mean `{close[0]}`?" if close else None
            raise _wrong(f"the model has no input `{name}`", None, ", ".join(names), help)
        if name in values:
            raise _wrong(f"the input `{name}` is given twice", None, None)
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        raise _wrong("inputs are missing", None, ", ".join(missing))
    return [values[name] for name in names]


def fit(spec: TensorSpec, value: Any) -> Array:
    """The value as an array of the input's dtype, records along its first axis.

    A number is taken in the input's dtype where it keeps its value: whole numbers that fit, floats
    that are not rounded to a narrower dtype than they have, Python numbers as they are.  A missing
    first axis of length 1 is added.  Raises E-CALL-010.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise _wrong(f"the input `{spec.name}` is no array", str(error), str(spec)) from None
    converted = _convert(spec, array, is_literal=not isinstance(value, np.ndarray | np.generic))
    shape = converted.shape
    if shape == spec.shape:
        return converted
    if spec.shape and spec.shape[0] == 1 and shape == spec.shape[1:]:
        return converted.reshape(spec.shape)
    many = (
        len(shape) == len(spec.shape)
        and len(shape) > 0
        and shape[1:] == spec.shape[1:]
        and spec.shape[0] > 0
        and shape[0] % spec.shape[0] == 0
    )
    if not many:
        raise _wrong(f"the input `{spec.name}` has another shape", str(list(shape)), str(spec))
    return converted


def count_records(specs: Sequence[TensorSpec], arrays: Sequence[Array]) -> int:
    """How many records the arrays hold; all must hold as many.  Raises E-CALL-010."""
    counts = {
        spec.name: array.shape[0] // spec.shape[0]
        for spec, array in zip(specs, arrays, strict=True)
        if spec.shape and spec.shape[0]
    }
    if len(set(counts.values())) > 1:
        came = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        raise _wrong("the inputs hold different numbers of records", came, None)
    return next(iter(counts.values()), 1)


def _convert(spec: TensorSpec, array: Array, *, is_literal: bool) -> Array:
    target = spec.dtype.numpy
    if array.dtype == target:
        return np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.kind not in "biuf" and array.dtype != DType.BF16.numpy:
        raise _wrong(f"the input `{spec.name}` holds no numbers", str(array.dtype), str(spec))
    with np.errstate(all="ignore"):
        converted = array.astype(target)
    exact = _keeps_values(array, converted)
    if not exact and not (is_literal and spec.dtype.is_float and array.dtype.kind in "iuf"):
        raise _wrong(
            f"the input `{spec.name}` would not keep its values as {spec.dtype}",
            str(array.dtype),
            str(spec),
            f"convert it first: array.astype({target.name!r})",
        )
    return converted


def _keeps_values(array: Array, converted: Array) -> bool:
    """Whether every value is the same after the conversion; booleans are no numbers."""
    if (array.dtype.kind == "b") != (converted.dtype.kind == "b"):
        return False
    if np.can_cast(array.dtype, converted.dtype, "safe"):
        return True
    if array.dtype.kind in "iu" and converted.dtype.kind in "iu":
        if not array.size:
            return True
        limits = np.iinfo(converted.dtype)
        return int(array.min()) >= limits.min and int(array.max()) <= limits.max
    return not array.size


def _wrong(
    message: str, came: str | None, expected: str | None, help: str | None = None
) -> SexpgpuError:
    return SexpgpuError("E-CALL-010", message, came=came, expected=expected, help=help)
