"""An ONNX Runtime session on a device, deterministic, its weights taken from where they are."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve.hosted import Hosted

_BF16 = 16  # onnx.TensorProto.BFLOAT16


class Device(msgspec.Struct, frozen=True):
    """Where a model runs: `cpu`, or `cuda` and which; `note` says why `auto` took it."""

    kind: str
    index: int = 0
    note: str = ""

    def __str__(self) -> str:
        return f"cuda:{self.index}" if self.kind == "cuda" else "cpu"


def choose_device(wanted: str) -> Device:
    """The device that `--device` means.  Raises E-DEVICE-001 where CUDA cannot be used."""
    kind, _, index = wanted.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and (kind != "cuda" or not index.isdecimal())):
        raise SexpgpuError(
            "E-USAGE-001",
            f"there is no device `{wanted}`",
            expected="auto, cpu, cuda or cuda:N",
            exit_code=2,
        )
    if kind == "cpu":
        return Device("cpu")
    from sexpgpu.serve.cuda import why_no_cuda

    obstacle = why_no_cuda(int(index or 0))
    if obstacle is None:
        return Device("cuda", int(index or 0))
    if kind == "auto":
        return Device("cpu", note=obstacle.message)
    raise obstacle


def open_session(hosted: Hosted, device: Device, threads: int) -> ort.InferenceSession:
    """Loads the model; its weights go to the device once, and mapped pages are let go.

    Raises E-DEVICE-001 where the device was not taken, E-VERIFY-002 where the file is refused.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    if threads > 1:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if hosted.folder:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", hosted.folder
        )
    kept = [_value(array) for array in hosted.weights.values()]
    if kept:
        options.add_external_initializers(list(hosted.weights), kept)
    try:
        session = ort.InferenceSession(
            str(hosted.model) if isinstance(hosted.model, Path) else hosted.model,
            options,
            providers=_providers(device),
        )
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise SexpgpuError(
            "E-VERIFY-002", "ONNX Runtime refuses the model", came=reason, place=hosted.place
        ) from None
    if device.kind == "cuda" and "CUDAExecutionProvider" not in session.get_providers():
        raise SexpgpuError(
            "E-DEVICE-001",
            "ONNX Runtime fell back from CUDA",
            came=", ".join(session.get_providers()),
            help="`sexpgpu doctor` says what is missing",
        )
    let_go(hosted.weights.values())
    return session


def let_go(arrays: Iterable[Array]) -> None:
    """Lets go of the pages of mapped files that the arrays lie in.

    ONNX Runtime has packed most of them in its own way; what it still reads comes back by itself.
    """
    mappings = {id(m): m for array in arrays if (m := _mapping(array)) is not None}
    for mapping in mappings.values():
        mapping.madvise(mmap.MADV_DONTNEED)
    # Packing took as much memory as the weights once more, and the C library would keep it.
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _mapping(array: Array) -> mmap.mmap | None:
    """The mapped file that a read-only array is a view of; changes to others would be lost."""
    owner: Any = None if array.flags.writeable else array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner


def _value(array: Array) -> ort.OrtValue:
    """The array's memory as ONNX Runtime takes it; whoever holds the session holds the array."""
    if DType.of(array) is DType.BF16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _BF16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def _providers(device: Device) -> list[Any]:
    if device.kind == "cpu":
        return ["CPUExecutionProvider"]
    cuda = {
        "device_id": device.index,
        "use_tf32": "0",
        "cudnn_conv_algo_search": "DEFAULT",
        "arena_extend_strategy": "kSameAsRequested",
    }
    return [("CUDAExecutionProvider", cuda), "CPUExecutionProvider"]
