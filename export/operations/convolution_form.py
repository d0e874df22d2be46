"""Convolution in f64, for which runtimes have no operator: slices, and a product of matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sexpgpu.export.graph.types import TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.rules import known
from sexpgpu.export.operations.windows import Windows
from sexpgpu.schemas.errors import SexpgpuError

#: Positions of a kernel that are sliced one by one.
_LARGEST_SLICED = 4096


def convolve_by_slices(
    onnx: Lowering,
    name: str,
    given: Mapping[str, OnnxValue],
    windows: Windows,
    groups: int,
    result: TensorType,
) -> str:
    """The strided slices of the padded tensor, stacked and multiplied by the kernel.

    `given` are the operands of `conv`: x, w and perhaps a bias.  Raises E-ONNX-001, on behalf of
    the operation `name`, where the kernel has too many positions.
    """
    x, w = given["x"], given["w"]
    spatial = len(windows.lengths)
    if math.prod(windows.sizes) > _LARGEST_SLICED:
        raise SexpgpuError(
            "E-ONNX-001",
            f"runtimes have no `{name}` in f64, and this kernel is too large for another form",
            came=str(w.type),
            expected=f"a kernel of at most {_LARGEST_SLICED:,} positions",
            help="compute it in f32: `(cast x f32)`",
        )
    padded = x.name
    if any(windows.onnx_pads):
        begins, ends = windows.onnx_pads[:spatial], windows.onnx_pads[spatial:]
        padded = onnx.add("Pad", padded, onnx.ints([0, 0, *begins, 0, 0, *ends]))
    out, share = (known(name, "the kernel's shape", d) for d in w.shape[:2])
    places = math.prod(windows.counts)
    offsets = list(windows.offsets())
    parts = []
    for offset in offsets:
        bounds = [windows.bounds(axis, at) for axis, at in enumerate(offset)]
        part = onnx.add(
            "Slice",
            padded,
            onnx.ints([start for start, _, _ in bounds]),
            onnx.ints([end for _, end, _ in bounds]),
            onnx.ints(range(2, 2 + spatial)),
            onnx.ints([step for _, _, step in bounds]),
        )
        parts.append(onnx.reshape(part, (x.shape[0], groups, share, 1, places)))
    stacked = onnx.add("Concat", *parts, axis=3) if len(parts) > 1 else parts[0]
    stacked = onnx.reshape(stacked, (x.shape[0], groups, share * len(offsets), places))
    kernel = onnx.reshape(w.name, (groups, out // groups, share * len(offsets)))
    y = onnx.reshape(onnx.add("MatMul", kernel, stacked), result.shape)
    if "bias" in given:
        y = onnx.add("Add", y, onnx.reshape(given["bias"].name, (out, *[1] * spatial)))
    return y
