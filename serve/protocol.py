"""The socket's bytes: frames, the greeting, and how tensors lie in a call and in its answer.

A frame is its length as a little-endian u64, then that many bytes.  A call holds every input of
one record in order, an answer a status byte and every output; tensors are their elements,
row-major, little-endian, without a header.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from sexpgpu.export.graph.types import DType

HEADER = struct.Struct("<Q")
OK = 0
ERROR = 1

#: What a client takes for a greeting or an error at most.
TEXT_LIMIT = 1 << 24
#: Pieces that the system reads or writes at a time (IOV_MAX).
PIECES = 1024


class TensorSpec(msgspec.Struct, frozen=True):
    """A tensor of one record: its name, its shape for a batch of one, and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in a frame."""
        return math.prod(self.shape) * self.dtype.itemsize

    def describe(self) -> dict[str, Any]:
        """As the greeting lists it."""
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype.value}

    @classmethod
    def read(cls, data: Any) -> TensorSpec:
        """From the greeting.  Raises ValueError where it is none."""
        try:
            name, shape, dtype = data["name"], data["shape"], DType(data["dtype"])
        except (TypeError, KeyError) as error:
            raise ValueError(f"a tensor is described without {error}") from None
        sizes = isinstance(shape, list) and all(type(d) is int and d >= 0 for d in shape)
        if not isinstance(name, str) or not sizes:
            raise ValueError("a tensor's name is a string, its shape a list of sizes")
        return cls(name, tuple(shape), dtype)

    def __str__(self) -> str:
        return f"{self.name} {list(self.shape)} {self.dtype}"


def record_bytes(tensors: Sequence[TensorSpec]) -> int:
    """Bytes that one record of these takes."""
    return sum(tensor.nbytes for tensor in tensors)


def frame(payload: bytes) -> bytes:
    """The payload with its length in front."""
    return HEADER.pack(len(payload)) + payload


def error_frame(message: str) -> bytes:
    """An answer that is an error."""
    return frame(bytes([ERROR]) + message.encode())


def advance(pieces: list[memoryview], count: int) -> None:
    """Drops the first `count` bytes of what is to be filled or sent, and empty pieces before it."""
    done = 0
    for piece in pieces:
        if count < len(piece):
            break
        count -= len(piece)
        done += 1
    del pieces[:done]
    if count:
        pieces[0] = pieces[0][count:]
