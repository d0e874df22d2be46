"""`:load` from safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.export.storage.weight_source import WeightSource
from sexpgpu.schemas.safetensors import DTYPES
from sexpgpu.schemas.tensor_file import MappedTensors


class SafetensorsSource(WeightSource):
    """A safetensors file, mapped.  Damage is E-TENSORS-001."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._tensors = MappedTensors(path)

    def keys(self) -> list[str]:
        return self._tensors.keys()

    def _describe(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        entry = self._tensors.entry(key)
        return DTYPES[entry.dtype], entry.shape

    def _array(self, key: str) -> Array:
        return self._tensors.tensor(key)
