"""Which keys a query of an attention may see, by their places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.onnx.lowering import Lowering


@dataclass(frozen=True, slots=True)
class Visibility:
    """A rule over places: a query sees keys up to its own place, the last `window` of them.

    Query i stands at place positions[i] + offset among the keys; without positions at
    keys - queries + i + offset, so that the last query stands at the last key.  Without `causal`
    and without a window every key is seen; a window looks back only.
    """

    queries: int
    keys: int
    causal: bool
    window: int | None
    offset: int

    @property
    def is_limited(self) -> bool:
        return self.causal or self.window is not None

    @property
    def is_causal(self) -> bool:
        """Whether query i sees keys up to i alone, where there are no positions."""
        return self.is_limited and self.queries == self.keys and self.offset <= 0

    @property
    def is_triangle(self) -> bool:
        """Whether query i sees exactly the keys up to i, where there are no positions."""
        return self.is_causal and self.offset == 0 and self.window is None

    def may_be_blind(self) -> bool:
        """Whether a query may see nothing, where there are no positions."""
        first, last = self._places()[[0, -1]] if self.queries else (0, 0)
        beyond = self.window is not None and last >= self.keys + self.window - 1
        return self.is_limited and bool(first < 0 or beyond)

    def seen(self, positions: Array | None) -> Array | None:
        """Whether query i sees key j: [queries, keys], after the axes that positions have before.

        None where all see all.
        """
        if not self.is_limited:
            return None
        places = self._places()
        if positions is not None:
            places = positions.astype(np.int64) + self.offset
        places, keys = places[..., None], np.arange(self.keys)
        seen = keys <= places
        return seen if self.window is None else seen & (keys > places - self.window)

    def write(self, onnx: Lowering, positions: str | None) -> str | None:
        """The ONNX form of `seen`; `positions` end in an axis of length 1.

        Without positions it is a constant, which a runtime computes when it loads the model: in
        the file there are only its two rows of places.
        """
        if not self.is_limited:
            return None
        if positions is not None:
            places = onnx.cast(positions, DType.I64)
            if self.offset:
                places = onnx.add("Add", places, onnx.scalar(self.offset, DType.I64))
            return self._compare(onnx, places)
        key = ("seen", self.queries, self.keys, self.window, self.offset)
        return onnx.shared(key, lambda: self._compare(onnx, onnx.constant(self._places()[:, None])))

    def _places(self) -> Array:
        return np.arange(self.queries, dtype=np.int64) + (self.keys - self.queries + self.offset)

    def _compare(self, onnx: Lowering, places: str) -> str:
        keys = onnx.constant(np.arange(self.keys, dtype=np.int64))
        seen = onnx.add("LessOrEqual", keys, places)
        if self.window is None:
            return seen
        behind = onnx.add("Sub", places, onnx.scalar(self.window, DType.I64))
        return onnx.add("And", seen, onnx.add("Greater", keys, behind))
