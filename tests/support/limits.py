"""What has no ONNX form, of all operations: the one list of it, with the reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sexpgpu.export.graph.types import Batch, Dimension, DType
from support.panels import Entry
from support.samples import Sample


@dataclass(frozen=True, slots=True)
class Limit:
    """What has no ONNX form, and why."""

    reason: str
    applies: Callable[[Sample, DType, Dimension], bool]


def _over_the_batch(sample: Sample, dtype: DType, batch: Dimension) -> bool:
    return dtype.is_integer and isinstance(batch, Batch) and not Entry.of(sample, dtype).is_apart


def _large_kernel(sample: Sample, dtype: DType, batch: Dimension) -> bool:
    return dtype is DType.F64 and np.prod(sample.arrays(dtype)[1].shape[2:]) > 4096


def _always(sample: Sample, dtype: DType, batch: Dimension) -> bool:
    return True


_DRAWS = "it draws random numbers, and a model that runs alone draws none"
_SLICED = (
    "runtimes have no convolutions in f64, and the slices that are written instead are one for "
    "each of the kernel's positions: at most 4,096"
)
#: The only operations that have no ONNX form, or none for some calls.
WITHOUT_ONNX: dict[str, Limit] = {
    "random-normal": Limit(_DRAWS, _always),
    "random-uniform": Limit(_DRAWS, _always),
    "dropout": Limit(_DRAWS, _always),
    "prod": Limit(
        "runtimes do not agree on products of whole numbers that overflow, and the tree of Mul "
        "that is written instead needs to know how many there are: over the batch it does not",
        _over_the_batch,
    ),
    "conv": Limit(_SLICED, _large_kernel),
    "conv-transpose": Limit(_SLICED, _large_kernel),
}


def has_onnx(sample: Sample, dtype: DType, batch: Dimension) -> bool:
    """Whether the sample can be lowered, in the dtype and with the batch as it is."""
    limit = WITHOUT_ONNX.get(sample.operation.name)
    return limit is None or not limit.applies(sample, dtype, batch)
