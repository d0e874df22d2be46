"""Why CUDA cannot be used: the loader's own words, without a GPU to ask."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import cuda
from sexpgpu.serve.engine import Engine
from sexpgpu.serve.session import Device, open_session
from support.serving import identity

CUDNN = "libcudnn.so.9"


class Driver:
    """The driver of a machine with some devices."""

    def __init__(self, devices: int, failure: int = 0) -> None:
        self.devices = devices
        self.failure = failure

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.failure

    def cuDeviceGetCount(self, pointer: Any) -> int:  # noqa: N802
        pointer._obj.value = self.devices
        return 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine on which the loader misses some libraries."""

    def make(missing: tuple[str, ...] = (), devices: int = 1, failure: int = 0) -> None:
        def load(name: str, mode: int = 0) -> Driver:
            for library in missing:
                if library in name:
                    raise OSError(f"{library}: cannot open shared object file")
            return Driver(devices, failure)

        monkeypatch.setattr(ctypes, "CDLL", load)
        monkeypatch.setattr(ort, "preload_dlls", lambda: None)
        monkeypatch.setattr(
            ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPU"]
        )

    return make


def why(index: int = 0) -> SexpgpuError:
    error = cuda.why_no_cuda(index)
    assert error is not None
    assert error.code == "E-DEVICE-001"
    return error


def test_a_machine_that_has_all(machine: Any) -> None:
    machine(devices=2)
    assert cuda.why_no_cuda() is None
    assert cuda.why_no_cuda(1) is None
    assert cuda.device_count() == 2


def test_a_runtime_without_cuda(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    assert "no CUDA provider" in why().message
    assert why().help == "pip install onnxruntime-gpu"


def test_the_missing_library_is_named(machine: Any) -> None:
    machine(("libcuda.so.1",))
    assert "libcuda.so.1" in why().message
    assert cuda.device_count() == 0
    machine(("libonnxruntime_providers_cuda.so",))
    assert "libonnxruntime_providers_cuda.so" in why().message
    machine((CUDNN,))
    assert CUDNN in why().message
    assert "pip install" in (why().help or "")


def test_a_device_that_there_is_not(machine: Any) -> None:
    machine(devices=1)
    error = why(3)
    assert error.message == "there is no CUDA device 3"
    assert error.came == "1 device"
    machine(devices=0)
    assert why().came == "0 devices"
    # A driver that does not match its module.
    machine(devices=4, failure=803)
    assert why().came == "0 devices"


def test_buffers_are_locked_until_they_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    locked: dict[int, int] = {}

    class Pinning(Driver):
        refused = False

        def cuDeviceGet(self, pointer: Any, index: int) -> int:  # noqa: N802
            return 0 if index < self.devices else 101

        def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802
            return 0

        def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802
            return 0

        def cuMemHostRegister_v2(self, address: Any, size: Any, flags: int) -> int:  # noqa: N802
            if not self.refused:
                locked[address.value] = size.value
            return int(self.refused)

        def cuMemHostUnregister(self, address: Any) -> int:  # noqa: N802
            del locked[address.value]
            return 0

    driver = Pinning(1)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    pin = cuda.pinning(0)
    assert pin is not None
    hosted = identity("f32", [4])
    engine = Engine(open_session(hosted, Device("cpu"), 1), hosted, 2, pin)
    assert sorted(locked.values()) == [32, 32]
    more = engine.new_buffers(1)
    assert sorted(locked.values()) == [16, 16, 32, 32]
    del more
    gc.collect()
    assert sorted(locked.values()) == [32, 32]
    del engine
    gc.collect()
    assert not locked
    driver.refused = True
    pin(np.zeros(8, np.uint8))
    assert not locked
    assert cuda.pinning(1) is None


def test_without_a_driver_nothing_is_locked(machine: Any) -> None:
    machine(("libcuda.so.1",))
    assert cuda.pinning(0) is None


@pytest.mark.gpu
@pytest.mark.skipif(not os.path.exists("/dev/nvidiactl"), reason="there is no NVIDIA device")
def test_cuda_runs_here() -> None:
    assert cuda.why_no_cuda() is None
