"""Running an ONNX file with ONNX Runtime, with arrays in and out, bf16 among them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError

#: Reporting usage is off; ONNX Runtime reads this when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_BF16 = 16  # onnx.TensorProto.BFLOAT16


class Session:
    """An ONNX file loaded by ONNX Runtime on the CPU.

    `mapped` leaves weights in their file, to be read from there: slower, and no memory is taken
    for them.  Raises E-VERIFY-002 where ONNX Runtime refuses the file or fails while running it.
    """

    def __init__(self, model: Path | bytes, *, threads: int = 0, mapped: bool = False) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        if mapped:
            options.add_session_config_entry("session.disable_prepacking", "1")
            # In the file's order what is made of a weight is made where it is used.
            options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        try:
            self._session = ort.InferenceSession(
                str(model) if isinstance(model, Path) else model,
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=["ConstantFolding"] if mapped else [],
            )
        except Exception as error:
            raise _failed("ONNX Runtime refuses the file", error) from None
        self.inputs = [value.name for value in self._session.get_inputs()]
        self.outputs = [value.name for value in self._session.get_outputs()]
        kinds = [v.type for v in (*self._session.get_inputs(), *self._session.get_outputs())]
        self._bound = "tensor(bfloat16)" in kinds

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Every output by name."""
        # NumPy makes rank 0 rank 1 on the way.
        feeds = {
            name: np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape)
            for name in self.inputs
        }
        try:
            if not self._bound:
                values = self._session.run(self.outputs, feeds)
                return dict(zip(self.outputs, values, strict=True))
            return self._run_bound(feeds)
        except Exception as error:
            raise _failed("ONNX Runtime fails while running the file", error) from None

    def _run_bound(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Through bound buffers, since NumPy has no bf16 of its own."""
        binding = self._session.io_binding()
        for name, array in feeds.items():
            element = _BF16 if array.dtype == ml_dtypes.bfloat16 else array.dtype
            binding.bind_input(name, "cpu", 0, element, array.shape, array.ctypes.data)
        for name in self.outputs:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        return {
            name: _copy(value)
            for name, value in zip(self.outputs, binding.get_outputs(), strict=True)
        }


def _copy(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        return np.array(value.numpy())
    shape = tuple(value.shape())
    count = int(np.prod(shape))
    if not count:
        return np.empty(shape, ml_dtypes.bfloat16)
    words = (ctypes.c_uint16 * count).from_address(value.data_ptr())
    bits: Array = np.array(words, np.uint16).view(ml_dtypes.bfloat16)
    return bits.reshape(shape)


def _failed(message: str, error: Exception) -> SexpgpuError:
    reason = str(error).strip().split("\n")[0]
    return SexpgpuError("E-VERIFY-002", message, came=reason)
