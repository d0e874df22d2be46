"""The turning of pairs of components by angles that grow with position, in NumPy and in ONNX."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array, DType, Shape
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.rules import known


@dataclass(frozen=True, slots=True)
class Rotation:
    """Which pairs are turned, and by what angles; the fields are the attributes of `rotary`."""

    turned: int
    base: float
    interleaved: bool
    length: int | None
    scaling: str | None
    factor: float
    low: float
    high: float
    original: int
    beta_fast: float
    beta_slow: float
    truncate: bool
    attention_factor: float | None

    def frequencies(self) -> Array:
        """The angle by which each pair is turned from one position to the next, in f64."""
        exponents = -np.arange(0, self.turned, 2, dtype=np.float64) / self.turned
        frequencies = np.asarray(self.base**exponents)
        if self.scaling == "linear":
            return np.asarray(frequencies / self.factor)
        if self.scaling == "llama3":
            waves = self.original * frequencies / (2 * math.pi)
            kept = np.clip((waves - self.low) / (self.high - self.low), 0, 1)
            return np.asarray(kept * frequencies + (1 - kept) * frequencies / self.factor)
        if self.scaling == "yarn":
            ramp = self._ramp()
            return np.asarray((1 - ramp) * frequencies + ramp * frequencies / self.factor)
        return frequencies

    def _ramp(self) -> Array:
        """How far yarn stretches each pair, from 0 to 1, with every step as transformers has it."""
        low, high = self._pair(self.beta_fast), self._pair(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.turned - 1)
        if low == high:
            high += 0.001
        return np.asarray(np.clip((np.arange(self.turned // 2) - low) / (high - low), 0, 1))

    def _pair(self, turns: float) -> float:
        """The index of the pair, not rounded, that turns so often over the original positions."""
        waves = math.log(self.original / (turns * 2 * math.pi))
        return self.turned * waves / (2 * math.log(self.base))

    @property
    def gain(self) -> float:
        """What cosines and sines are multiplied by."""
        if self.attention_factor is not None:
            return self.attention_factor
        stretched = self.scaling == "yarn" and self.factor > 1
        return 0.1 * math.log(self.factor) + 1 if stretched else 1.0

    def tables(self, positions: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """The cosines and sines for positions, with an axis of pairs behind theirs."""
        if self.length is not None:
            positions = np.clip(positions, 0, self.length - 1)
        angles = positions.astype(np.float64)[..., None] * self.frequencies()
        gain = self.gain
        return (gain * np.cos(angles)).astype(dtype), (gain * np.sin(angles)).astype(dtype)

    def turn(self, x: Array, cosines: Array, sines: Array) -> Array:
        part, rest = x[..., : self.turned], x[..., self.turned :]
        if self.interleaved:
            a, b = part[..., 0::2], part[..., 1::2]
        else:
            a, b = part[..., : self.turned // 2], part[..., self.turned // 2 :]
        pair = (a * cosines - b * sines, b * cosines + a * sines)
        if self.interleaved:
            part = np.stack(pair, axis=-1).reshape(part.shape)
        else:
            part = np.concatenate(pair, axis=-1)
        return np.concatenate([part, rest], axis=-1)


@dataclass(frozen=True, slots=True)
class RotationForm:
    """Writes the turning of one tensor, [..., time, width]."""

    onnx: Lowering
    rotation: Rotation
    x: OnnxValue

    def write(self, positions: OnnxValue | None) -> str:
        """The name of the result; without positions they are 0, 1, 2, …."""
        places = None if positions is None else self.places(positions)
        bounded = positions is None or self.rotation.length is not None
        plain = self.x.dtype is DType.F32 and self.x.type.rank == 4
        if self.onnx.fused and bounded and plain:
            return self.fused(places)
        return self.turn(*self.angles(places))

    def places(self, positions: OnnxValue) -> str:
        """The positions, within the table where there is one, as i64: [time] or, aligned to x,
        [batch, 1…, time]."""
        name = self.onnx.cast(positions.name, DType.I64)
        shape: Shape = positions.shape[-1:]
        if positions.type.rank > 1:
            shape = (positions.shape[0], *[1] * (self.x.type.rank - 3), *shape)
        if shape != positions.shape:
            name = self.onnx.reshape(name, shape)
        if self.rotation.length is None:
            return name
        least, most = (self.onnx.scalar(n, DType.I64) for n in (0, self.rotation.length - 1))
        return self.onnx.add("Clip", name, least, most)

    def angles(self, places: str | None) -> list[str]:
        """Cosines and sines that broadcast to the pairs."""
        dtype = self.x.dtype
        if places is None:
            return self.tables(self.time())
        if self.rotation.length is not None:
            tables = self.tables(self.rotation.length)
            return [self.onnx.add("Gather", table, places, axis=0) for table in tables]
        column = self.onnx.add("Unsqueeze", self.onnx.cast(places, DType.F64), self.onnx.ints([-1]))
        angles = self.onnx.add("Mul", column, self.onnx.constant(self.rotation.frequencies()))
        both = [self.onnx.add("Cos", angles), self.onnx.add("Sin", angles)]
        if self.rotation.gain != 1:
            gain = self.onnx.scalar(self.rotation.gain, DType.F64)
            both = [self.onnx.add("Mul", name, gain) for name in both]
        return both if dtype is DType.F64 else [self.onnx.cast(name, dtype) for name in both]

    def tables(self, length: int) -> list[str]:
        """The constant cosines and sines of the first positions."""
        tables = self.rotation.tables(np.arange(length), self.x.dtype.numpy)
        return [self.onnx.constant(table) for table in tables]

    def turn(self, cosines: str, sines: str) -> str:
        onnx = self.onnx
        a, b, *rest = self.interleaved() if self.rotation.interleaved else self.halves()
        left = onnx.add("Sub", onnx.add("Mul", a, cosines), onnx.add("Mul", b, sines))
        right = onnx.add("Add", onnx.add("Mul", b, cosines), onnx.add("Mul", a, sines))
        if not self.rotation.interleaved:
            return onnx.add("Concat", left, right, *rest, axis=-1)
        pair = [onnx.add("Unsqueeze", name, onnx.ints([-1])) for name in (left, right)]
        shape = (*self.x.shape[:-1], self.rotation.turned)
        made = onnx.reshape(onnx.add("Concat", *pair, axis=-1), shape)
        return onnx.add("Concat", made, *rest, axis=-1) if rest else made

    def halves(self) -> list[str]:
        """The first of each pair, the second, and what stays, if anything."""
        half = self.rotation.turned // 2
        sizes = [size for size in (half, half, self.width() - 2 * half) if size]
        return self.split(self.x.name, sizes)

    def interleaved(self) -> list[str]:
        """The same where pairs stand side by side."""
        turned = self.rotation.turned
        sizes = [size for size in (turned, self.width() - turned) if size]
        part, *rest = self.split(self.x.name, sizes) if len(sizes) > 1 else [self.x.name]
        pairs = self.onnx.reshape(part, (*self.x.shape[:-1], turned // 2, 2))
        numbers = [self.onnx.scalar(index, DType.I64) for index in (0, 1)]
        return [*(self.onnx.add("Gather", pairs, number, axis=-1) for number in numbers), *rest]

    def split(self, name: str, sizes: list[int]) -> list[str]:
        return self.onnx.add("Split", name, self.onnx.ints(sizes), axis=-1, outputs=len(sizes))

    def fused(self, places: str | None) -> str:
        """ONNX's own operator; x is [batch, heads, time, width], and every record has positions."""
        batch, _, time, _ = self.x.shape
        if places is None:
            places = self.onnx.constant(np.arange(self.time()))
        rows = self.onnx.add("Expand", places, self.onnx.shape((batch, 1, time)))
        rows = self.onnx.add("Squeeze", rows, self.onnx.ints([1]))
        length = self.time() if self.rotation.length is None else self.rotation.length
        turned = self.rotation.turned
        return self.onnx.add(
            "RotaryEmbedding",
            self.x.name,
            *self.tables(length),
            rows,
            interleaved=int(self.rotation.interleaved),
            rotary_embedding_dim=None if turned == self.width() else turned,
        )

    def time(self) -> int:
        return known("rotary", "how many positions there are", self.x.shape[-2])

    def width(self) -> int:
        return known("rotary", "the width", self.x.shape[-1])
