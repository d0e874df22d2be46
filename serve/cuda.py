"""Whether ONNX Runtime can run on CUDA here, and what is missing where it cannot.

ONNX Runtime itself only warns and falls back to the CPU, so its CUDA provider is loaded here as it
will be loaded by it, and the loader's own words name the library that is missing.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from pathlib import Path

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError

DRIVER = "libcuda.so.1"
_CUDNN = "libcudnn.so.9"
#: Locked for every context, CU_MEMHOSTREGISTER_PORTABLE.
_PORTABLE = 1
_INSTALL = "pip install 'onnxruntime-gpu[cuda,cudnn]'"


def why_no_cuda(index: int = 0) -> SexpgpuError | None:
    """The error that says why CUDA cannot be used; None where it can."""
    import onnxruntime as ort

    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return _no("this ONNX Runtime has no CUDA provider", "pip install onnxruntime-gpu")
    if _missing(DRIVER) is not None:
        return _no(f"{DRIVER} is missing: there is no NVIDIA driver", "install the NVIDIA driver")
    # NVIDIA's libraries may have come as Python packages, which the loader does not look into.
    ort.preload_dlls()
    folder = Path(ort.__file__).parent / "capi"
    for name in ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"):
        missing = _missing(str(folder / name))
        if missing is not None:
            return _no(f"CUDA's libraries cannot be loaded: {missing}", _INSTALL)
    missing = _missing(_CUDNN)
    if missing is not None:
        return _no(f"cuDNN cannot be loaded: {missing}", _INSTALL)
    count = device_count()
    if index >= count:
        came = f"{count} device" if count == 1 else f"{count} devices"
        return _no(f"there is no CUDA device {index}", None, came=came)
    return None


def device_count() -> int:
    """How many CUDA devices the driver shows; 0 without a driver."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def pinning(index: int) -> Callable[[Array], None] | None:
    """What page-locks buffers for a device, until they are freed; None where it cannot be done.

    The device then copies from and to them by itself; without, the driver copies them once more.
    """
    try:
        driver = ctypes.CDLL(DRIVER)
        register, unregister = driver.cuMemHostRegister_v2, driver.cuMemHostUnregister
    except (OSError, AttributeError):
        return None
    # The context that ONNX Runtime works in; this thread may not have been in it yet.
    device, context = ctypes.c_int(0), ctypes.c_void_p()
    if (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), index)
        or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        or driver.cuCtxSetCurrent(context)
    ):
        return None

    def pin(memory: Array) -> None:
        address = ctypes.c_void_p(memory.ctypes.data)
        # A buffer that cannot be locked is one that is copied more slowly, and nothing else.
        if not register(address, ctypes.c_size_t(memory.nbytes), _PORTABLE):
            weakref.finalize(memory, unregister, address)

    return pin


def _missing(library: str) -> str | None:
    """Why the library cannot be loaded, in the loader's words; None where it can."""
    try:
        ctypes.CDLL(library, mode=os.RTLD_LAZY | os.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return None


def _no(message: str, help: str | None, came: str | None = None) -> SexpgpuError:
    return SexpgpuError("E-DEVICE-001", message, came=came, help=help)
