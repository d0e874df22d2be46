"""Attributes as model.json writes them, and back: every float keeps its bits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import Array, Batch, Dimension, DType
from sexpgpu.export.operations.signature import Attribute, Kind

#: Elements a constant may have; larger arrays are weights.
CONSTANT_LIMIT = 1 << 20

_CANONICAL_NAN = {
    DType.F64: 0x7FF8000000000000,
    DType.F32: 0x7FC00000,
    DType.BF16: 0x7FC0,
}
_WORDS = {DType.F64: np.uint64, DType.F32: np.uint32, DType.BF16: np.uint16}
_DIMENSION = re.compile(r"^(?:([1-9][0-9]*)\*)?batch$")


class Malformed(ValueError):
    """An attribute is not of its kind; the message says what was expected."""


def write_dimension(dimension: Dimension) -> int | str:
    return str(dimension) if isinstance(dimension, Batch) else dimension


def read_dimension(value: int | str) -> Dimension:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Malformed('a whole number, "batch" or "N*batch"')
    if isinstance(value, int):
        return value
    match = _DIMENSION.match(value)
    if match is None:
        raise Malformed('a whole number, "batch" or "N*batch"')
    return Batch(int(match.group(1) or 1))


def write_attribute(attribute: Attribute, value: Any, write_body: Callable[[Graph], Any]) -> Any:
    """Plain JSON data for an attribute's value."""
    if value is None:
        return None
    match attribute.kind:
        case Kind.NUMBER:
            return _write_float(float(value))
        case Kind.DTYPE:
            return str(value)
        case Kind.SHAPE:
            return [write_dimension(d) for d in value]
        case Kind.INTEGERS | Kind.NAMES:
            return list(value)
        case Kind.ARRAY:
            return _write_array(value)
        case Kind.GRAPH:
            return write_body(value)
        case Kind.INTEGER:
            return write_dimension(value)
        case Kind.PADDING if isinstance(value, tuple):
            return [list(v) if isinstance(v, tuple) else v for v in value]
        case _:
            return value


def read_attribute(attribute: Attribute, data: Any, read_body: Callable[[Any], Graph]) -> Any:
    """The value that plain JSON data stands for.  Raises Malformed."""
    if data is None:
        if attribute.default is not None:
            raise Malformed(f"a {attribute.kind}")
        return None
    match attribute.kind:
        case Kind.INTEGER:
            return read_dimension(data) if isinstance(data, str) else _integer(data)
        case Kind.NUMBER:
            return _read_float(data)
        case Kind.BOOLEAN if isinstance(data, bool):
            return data
        case Kind.WORD if data in attribute.choices:
            return data
        case Kind.WORD:
            raise Malformed("one of " + ", ".join(attribute.choices))
        case Kind.STRING if isinstance(data, str):
            return data
        case Kind.DTYPE if data in list(DType):
            return DType(data)
        case Kind.INTEGERS if isinstance(data, list):
            return tuple(_integer(v) for v in data)
        case Kind.SHAPE if isinstance(data, list):
            return tuple(read_dimension(v) for v in data)
        case Kind.NAMES if isinstance(data, list) and all(isinstance(v, str) for v in data):
            return tuple(data)
        case Kind.ARRAY:
            return _read_array(data)
        case Kind.GRAPH:
            return read_body(data)
        case Kind.PADDING:
            return _read_padding(data, attribute.choices)
    raise Malformed(f"a {attribute.kind}")


def _read_padding(data: Any, words: tuple[str, ...]) -> Any:
    if isinstance(data, str) and data in words:
        return data
    if not isinstance(data, list):
        return _integer(data)
    if any(isinstance(v, list) and len(v) != 2 for v in data):
        raise Malformed("for each axis a whole number or a pair of them")
    return tuple(
        (_integer(v[0]), _integer(v[1])) if isinstance(v, list) else _integer(v) for v in data
    )


def _integer(data: Any) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or not -(2**63) <= data < 2**63:
        raise Malformed("a whole number of 64 bits")
    return data


def _write_float(value: float) -> float | str:
    return value if math.isfinite(value) else _write_special(np.asarray(value), DType.F64)


def _write_special(element: Array, dtype: DType) -> str:
    if not np.isnan(element.astype(np.float64)):
        return "inf" if element > 0 else "-inf"
    bits = int(element.view(_WORDS[dtype]))
    return "nan" if bits == _CANONICAL_NAN[dtype] else f"nan:{bits:0{dtype.itemsize * 2}x}"


def _read_float(data: Any) -> float:
    return float(_read_elements([data], DType.F64)[0])


def _write_array(array: Array) -> dict[str, Any]:
    dtype = DType.of(array)
    flat = array.reshape(-1)
    data: list[Any]
    if dtype.is_float:
        finite = np.isfinite(flat.astype(np.float64))
        data = [
            float(element) if ok else _write_special(element, dtype)
            for element, ok in zip(flat, finite, strict=True)
        ]
    else:
        data = flat.tolist()
    return {"dtype": str(dtype), "shape": list(array.shape), "data": data}


def _read_array(data: Any) -> Array:
    expected = 'a constant: {"dtype", "shape", "data"}'
    if not isinstance(data, dict) or set(data) != {"dtype", "shape", "data"}:
        raise Malformed(expected)
    if data["dtype"] not in list(DType) or not isinstance(data["shape"], list):
        raise Malformed(expected)
    dtype = DType(data["dtype"])
    shape = tuple(_integer(d) for d in data["shape"])
    if len(shape) > 16 or any(d < 0 for d in shape) or not isinstance(data["data"], list):
        raise Malformed(expected)
    if math.prod(shape) != len(data["data"]) or len(data["data"]) > CONSTANT_LIMIT:
        raise Malformed(f"{math.prod(shape)} elements, and at most {CONSTANT_LIMIT}")
    elements = _read_elements(data["data"], dtype)
    try:
        return elements.reshape(shape)
    except ValueError:  # an axis of length 0 beside axes that are too long
        raise Malformed(expected) from None


def _read_elements(data: list[Any], dtype: DType) -> Array:
    if dtype is DType.BOOL:
        if not all(isinstance(v, bool) for v in data):
            raise Malformed("booleans")
        return np.array(data, np.bool_)
    if dtype.is_integer:
        limit = 2 ** (8 * dtype.itemsize - 1)
        if not all(-limit <= _integer(v) < limit for v in data):
            raise Malformed(f"whole numbers of {8 * dtype.itemsize} bits")
        return np.array(data, dtype.numpy)
    result = np.empty(len(data), dtype.numpy)
    words = result.view(_WORDS[dtype])
    for index, value in enumerate(data):
        if isinstance(value, str):
            words[index] = _special_bits(value, dtype)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise Malformed("numbers")
        else:
            result[index] = _finite(value, dtype)
    return result


def _finite(value: int | float, dtype: DType) -> Array:
    """The number in the dtype, which must be able to hold it."""
    try:
        with np.errstate(over="ignore"):
            number = np.asarray(float(value)).astype(dtype.numpy)
    except OverflowError:
        number = np.asarray(np.inf)
    if not np.isfinite(number):
        raise Malformed(f"numbers that {dtype} can hold")
    return number


def _special_bits(text: str, dtype: DType) -> int:
    """The bits of "inf", "-inf", "nan" or "nan:HEX"."""
    if text in ("inf", "-inf"):
        return int(np.asarray(float(text)).astype(dtype.numpy).view(_WORDS[dtype]))
    if text == "nan":
        return _CANONICAL_NAN[dtype]
    match = re.fullmatch(rf"nan:([0-9a-f]{{{2 * dtype.itemsize}}})", text)
    if match is None:
        raise Malformed('a number, "inf", "-inf", "nan" or "nan:" and its bits')
    bits = int(match.group(1), 16)
    if not np.isnan(np.asarray(bits, _WORDS[dtype]).view(dtype.numpy).astype(np.float64)):
        raise Malformed("the bits of a NaN")
    return bits
