"""Devices, and sessions on them."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest

from sexpgpu.export.graph.document import ModelFile
from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import cuda
from sexpgpu.serve.engine import Engine
from sexpgpu.serve.hosted import Shaping
from sexpgpu.serve.lowering import host_model
from sexpgpu.serve.session import Device, choose_device, let_go, open_session
from support.exports import checkpoint
from support.hosting import CPU
from support.serving import onnx_hosted

NO_CUDA = SexpgpuError("E-DEVICE-001", "libcuda.so.1 is missing: there is no NVIDIA driver")


def test_a_device_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(cuda, "why_no_cuda", asked.append)
    assert choose_device("cpu") == Device("cpu")
    assert asked == []
    assert str(choose_device("cuda:2")) == "cuda:2"
    assert str(choose_device("cuda")) == "cuda:0"
    assert str(choose_device("auto")) == "cuda:0"
    assert asked == [2, 0, 0]


def test_cuda_that_cannot_run_is_an_error_and_auto_says_what_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda, "why_no_cuda", lambda index: NO_CUDA)
    with pytest.raises(SexpgpuError) as caught:
        choose_device("cuda")
    assert caught.value.code == "E-DEVICE-001"
    auto = choose_device("auto")
    assert str(auto) == "cpu"
    assert auto.note == NO_CUDA.message


@pytest.mark.parametrize("wanted", ["gpu", "cpu:0", "cuda:x", "cuda:-1", "auto:1", ""])
def test_a_device_that_there_is_not(wanted: str) -> None:
    with pytest.raises(SexpgpuError) as caught:
        choose_device(wanted)
    assert caught.value.code == "E-USAGE-001"
    assert caught.value.exit_code == 2


def test_a_session_that_fell_back_is_an_error() -> None:
    # Without a GPU, ONNX Runtime only warns.
    if "CUDAExecutionProvider" in ort.get_available_providers() and not cuda.why_no_cuda():
        pytest.skip("CUDA runs here")
    hosted = onnx_hosted("float[N] x", "float[N] y", "y = Neg (x)")
    with pytest.raises(SexpgpuError) as caught:
        open_session(hosted, Device("cuda"), 1)
    assert caught.value.code in ("E-DEVICE-001", "E-VERIFY-002")


def test_a_model_that_the_runtime_refuses() -> None:
    hosted = onnx_hosted("float[N] x", "float[N] y", "y = Neg (x)")
    hosted.model = b"not a model"
    with pytest.raises(SexpgpuError) as caught:
        open_session(hosted, CPU, 1)
    assert caught.value.code == "E-VERIFY-002"


def test_weights_in_memory_are_read_where_they_are() -> None:
    weight = np.array([1.5, -2], ml_dtypes.bfloat16)
    x = Value(TensorType(DType.F32, (Batch(), 2)), name="x")
    w = Value(TensorType(DType.BF16, (2,)), name="w")
    wide = make_node(all_operations()["cast"], [w], {"dtype": DType.F32})
    total = make_node(all_operations()["+"], [x, wide.results[0]], {})
    graph = Graph([x], {"w": w}, [wide, total], {"y": total.results[0]})
    read = {"w": weight}.__getitem__
    hosted = host_model(ModelFile(graph, "f32"), read, "a test", Shaping())
    assert next(iter(hosted.weights.values())) is weight
    engine = Engine(open_session(hosted, CPU, 1), hosted, 1)
    engine.buffers.inputs[0].records(1)[:] = 1
    engine.run(1)
    assert engine.buffers.outputs[0].records(1).tolist() == [[2.5, -1]]


def test_pages_of_mapped_files_are_let_go(tmp_path: Path) -> None:
    size = 32 << 20
    path = tmp_path / "weights"
    path.write_bytes(b"\1" * size)
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    array = np.frombuffer(mapping, np.uint8).reshape(2, -1)
    assert array[1].sum() == size // 2
    assert array[0].sum() == size // 2
    before = _resident()
    let_go([array[0].view(np.int8), np.zeros(3)])
    assert before - _resident() > size * 0.9
    # What is read again comes back.
    assert array.sum() == size


def test_loading_leaves_the_weights_once_in_memory(tmp_path: Path) -> None:
    # In a process of its own, whose memory nothing else has shaped.
    wide = """
(def record (fields :x (list f32 2048)))
(defmodel net () (parts a (linear 2048 2048) b (linear 2048 2048) c (linear 2048 2048))
  (apply (x) (c (relu (b (relu (a x)))))))
(def model (net))
"""
    location = checkpoint(wide, tmp_path)
    code = f"""
from sexpgpu.serve.hosted import Shaping, open_operand
from sexpgpu.serve.session import Device, open_session

def held():
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssFile"))

hosted = open_operand({location!r}, Shaping(trained=True))
before = held()
session = open_session(hosted, Device("cpu"), 1)
print(held() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.9 < int(done.stdout) / (3 * 2048 * 2048 * 4) < 1.5


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
