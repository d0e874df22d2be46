"""A line of `metrics.jsonl`: what a run measured at a step, as a JSON object.

    {"step":20,"kind":"train","time":1.25,"loss":3.2,"learning_rate":0.001}

`step`, `kind` and `time` come first, and each number follows under its name.  What JSON has no
number for is written as text, as in model.json: `"inf"`, `"-inf"` and `"nan"`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import Readable
from sexpgpu.tools.train.scalars import Number

TRAIN = "train"
EVALUATION = "evaluation"

_HEAD = ("step", "kind", "time")
_PREFIX = "metric:"
_PIECE = 1 << 20
_LINE_LIMIT = 1 << 20
"""The longest line that is read, in bytes: thousands of numbers fit in it."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, int | float | str])


@dataclass(frozen=True, slots=True)
class Record:
    """What was measured at a step: of which `kind`, after how many seconds of the run."""

    step: int
    kind: str
    time: float
    values: Mapping[str, Number]


def write_record(record: Record) -> bytes:
    """The record's line, with its end.

    A value called as one of the first three keys is written as `metric:<name>`.
    """
    line: dict[str, int | float | str] = {
        "step": record.step,
        "kind": record.kind,
        "time": round(record.time, 3),
    }
    for name, value in record.values.items():
        finite = isinstance(value, int) or math.isfinite(value)
        line[_PREFIX + name if name in _HEAD else name] = value if finite else str(value)
    return _encoder.encode(line) + b"\n"


def read_record(line: bytes, place: str) -> Record:
    """The record of a line without its end; raises E-JSON-001, with `place`, where it is none."""
    try:
        content: dict[str, Any] = _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise _malformed(place, str(error)) from None
    step, kind, time = (content.pop(key, None) for key in _HEAD)
    if type(step) is not int or step < 0:
        raise _malformed(place, "no whole number under `step`")
    if not isinstance(kind, str):
        raise _malformed(place, "no text under `kind`")
    if not isinstance(time, (int, float)):
        raise _malformed(place, "no number under `time`")
    values: dict[str, Number] = {}
    for key, value in content.items():
        if isinstance(value, str) and value not in ("inf", "-inf", "nan"):
            raise _malformed(place, f"text under `{key}`")
        bare = key.removeprefix(_PREFIX)
        name = bare if bare in _HEAD else key
        values[name] = float(value) if isinstance(value, str) else value
    return Record(step, kind, float(time), values)


def read_lines(file: Readable, place: str) -> Iterator[bytes]:
    """The lines of a log, each with its end; what follows the last end was cut off and is left out.

    Raises E-JSON-001 for a line longer than any that is written.
    """
    rest = b""
    number = 1
    while piece := file.read(_PIECE):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
            number += 1
        if len(rest) > _LINE_LIMIT:
            raise _malformed(f"{place}, line {number}", f"more than {_LINE_LIMIT:,} bytes")


def _malformed(place: str, came: str) -> SexpgpuError:
    return SexpgpuError(
        "E-JSON-001",
        "this line is no record of a run's metrics",
        place=place,
        came=came,
        expected='{"step":20,"kind":"train","time":1.25,"loss":3.2}: numbers by their names',
        help="remove the line, or move the file away: a resumed run then begins another",
    )
