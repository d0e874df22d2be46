"""Whether ONNX Runtime can run on CUDA here, and what is missing where it cannot."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sexpgpu.schemas.errors import SexpgpuError

#: The libraries that ONNX Runtime's CUDA provider loads, and the package that brings each.
LIBRARIES = {
    "libcudart.so.12": "nvidia-cuda-runtime-cu12",
    "libcublas.so.12": "nvidia-cublas-cu12",
    "libcublasLt.so.12": "nvidia-cublas-cu12",
    "libcudnn.so.9": "nvidia-cudnn-cu12",
    "libcufft.so.11": "nvidia-cufft-cu12",
    "libcurand.so.10": "nvidia-curand-cu12",
}
DRIVER = "libcuda.so.1"


@dataclass(frozen=True, slots=True)
class Library:
    """A library, whether it can be loaded, and the package that installs it."""

    name: str
    package: str
    loads: bool


def find_libraries() -> list[Library]:
    """Every library of the CUDA provider, tried as it will be loaded."""
    return [Library(name, package, _loads(name)) for name, package in LIBRARIES.items()]


def why_no_cuda(index: int = 0) -> SexpgpuError | None:
    """The error that says why CUDA cannot be used; None where it can."""
    import onnxruntime as ort

    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return _no("this ONNX Runtime has no CUDA provider", "pip install onnxruntime-gpu")
    if not _loads(DRIVER):
        return _no(f"{DRIVER} is missing: there is no NVIDIA driver", "install the NVIDIA driver")
    missing = [library for library in find_libraries() if not library.loads]
    if missing:
        names = ", ".join(library.name for library in missing)
        packages = " ".join(dict.fromkeys(library.package for library in missing))
        return _no(f"{names} cannot be loaded", f"pip install {packages}")
    count = device_count()
    if index >= count:
        return _no(f"there is no CUDA device {index}", None, came=f"{count} devices")
    return None


def device_count() -> int:
    """How many CUDA devices the driver shows; 0 without a driver."""
    try:
        driver = ctypes.CDLL(DRIVER)
        count = ctypes.c_int(0)
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return 0
    except OSError:
        return 0
    return count.value


def _no(message: str, help: str | None, came: str | None = None) -> SexpgpuError:
    return SexpgpuError("E-DEVICE-001", message, came=came, help=help)


def _loads(name: str) -> bool:
    """Whether the loader finds it, or a package of NVIDIA's brought it."""
    places = [name, *(str(path) for path in _package_files(name))]
    for place in places:
        try:
            ctypes.CDLL(place, mode=os.RTLD_LAZY | os.RTLD_GLOBAL)
        except OSError:
            continue
        return True
    return False


def _package_files(name: str) -> list[Path]:
    return [
        path
        for root in sys.path
        if (base := Path(root) / "nvidia").is_dir()
        for path in base.glob(f"*/lib/{name}")
    ]
