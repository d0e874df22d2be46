"""What the two Python clients share: the greeting, a call's pieces, and an answer's places."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve.arrays import bind_arguments, fit
from sexpgpu.serve.protocol import ERROR, HEADER, OK, TEXT_LIMIT, TensorSpec, record_bytes

#: A record to call with: an array for a model of one input, arrays in order, or arrays by name.
Record = Any
#: One output's array, or every output's by name.
Result = Any


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the server says of its model; `about` is all of it."""

    about: dict[str, Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @classmethod
    def read(cls, text: bytes | bytearray) -> Greeting:
        """From the first frame.  Raises E-CLIENT-003 where it is something else."""
        try:
            about = json.loads(text)
            inputs = tuple(TensorSpec.read(item) for item in about["inputs"])
            outputs = tuple(TensorSpec.read(item) for item in about["outputs"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise not_ours(f"the greeting cannot be read: {error}") from None
        return cls(about, inputs, outputs)

    def pack(self, record: Sequence[Any], named: Mapping[str, Any]) -> list[memoryview]:
        """The frame of a call, in pieces that lie where the arrays are.  Raises E-CALL-010."""
        values = bind_arguments(self.inputs, record, named)
        pieces = [memoryview(HEADER.pack(record_bytes(self.inputs)))]
        for spec, value in zip(self.inputs, values, strict=True):
            array = fit(spec, value)
            if array.shape != spec.shape:
                raise SexpgpuError(
                    "E-CALL-010",
                    f"the input `{spec.name}` has another shape",
                    came=str(list(array.shape)),
                    expected=str(spec),
                    help="a call holds one record; `call_many` takes several",
                )
            if spec.nbytes:
                pieces.append(byte_view(array))
        return pieces

    def pack_record(self, record: Record) -> list[memoryview]:
        """The same for a record of `call_many`."""
        if isinstance(record, Mapping):
            return self.pack((), record)
        if isinstance(record, list | tuple) and (len(self.inputs) != 1 or len(record) == 1):
            return self.pack(record, {})
        return self.pack((record,), {})


class Answer:
    """The places that an answer is received to, in order, and what came of it.

    `places` begins with the header and the status; an error's text, which is of another length,
    comes to lie in the outputs' places and is read on from there.
    """

    def __init__(self, greeting: Greeting) -> None:
        self._greeting = greeting
        self._head = bytearray(HEADER.size + 1)
        self._size = 1 + record_bytes(greeting.outputs)
        try:
            self.arrays = [np.empty(spec.shape, spec.dtype.numpy) for spec in greeting.outputs]
        except (MemoryError, ValueError):
            raise not_ours(f"an answer of {self._size:,} bytes does not fit into memory") from None
        self._views = [byte_view(array) for array in self.arrays if array.nbytes]

    @property
    def places(self) -> list[memoryview]:
        """Where all of a good answer goes."""
        return [memoryview(self._head), *self._views]

    @property
    def total(self) -> int:
        """Bytes of a good answer's frame."""
        return HEADER.size + self._size

    def error_length(self, received: int) -> int | None:
        """Once the header and the status have come: how long an error's text is, if it is one.

        Raises E-CLIENT-003 where it is no answer to the call.
        """
        (length,) = HEADER.unpack_from(self._head)
        status = self._head[HEADER.size]
        if status == OK and length == self._size:
            return None
        if status == ERROR and 1 <= length <= TEXT_LIMIT and received <= HEADER.size + length:
            return int(length) - 1
        raise not_ours(f"an answer is {self._size:,} bytes, a frame of {length:,} came")

    def begun_text(self, received: int) -> bytearray:
        """The beginning of an error's text."""
        text = bytearray()
        left = received - HEADER.size - 1
        for view in self._views:
            text += view[: left - len(text)]
        return text

    def result(self) -> Result:
        """One output's array, or every output's by name."""
        if len(self.arrays) == 1:
            return self.arrays[0]
        names = (spec.name for spec in self._greeting.outputs)
        return dict(zip(names, self.arrays, strict=True))


def byte_view(array: Array) -> memoryview:
    """The bytes of a contiguous array, where they lie."""
    return memoryview(array.reshape(-1).view(np.uint8).data)


def greeting_length(header: bytes | bytearray) -> int:
    """How long the greeting is.  Raises E-CLIENT-003 where it is longer than any is."""
    (length,) = HEADER.unpack(header)
    if length > TEXT_LIMIT:
        raise not_ours(f"a greeting of {length:,} bytes is announced")
    return int(length)


def refused(text: bytes | bytearray) -> SexpgpuError:
    """The error that a server answered with."""
    return SexpgpuError("E-CLIENT-002", bytes(text).decode("utf-8", "replace"))


def not_ours(reason: str) -> SexpgpuError:
    """What came is no part of the protocol."""
    return SexpgpuError(
        "E-CLIENT-003",
        "what answers does not speak the protocol of `sexpgpu serve`",
        came=reason,
    )


def no_server(path: str, reason: str) -> SexpgpuError:
    """Nobody listens."""
    return SexpgpuError(
        "E-CLIENT-001",
        f"no server answers at {path}",
        came=reason,
        help=f"start one: sexpgpu serve CHECKPOINT --socket {path}",
    )


def ended(error: OSError) -> SexpgpuError:
    """The connection failed, or a timeout ended it."""
    if isinstance(error, TimeoutError):
        return gone("no answer came in time")
    return gone(error.strerror or str(error))


def gone(reason: str) -> SexpgpuError:
    """The connection ended, or was ended, before the answer came."""
    return SexpgpuError("E-CLIENT-001", "the connection to the server has ended", came=reason)
