"""ONNX files for tests, written in ONNX's text form, and ONNX Runtime's own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import load
from sexpgpu.serve.hosted import Hosted, Shaping, open_operand
from sexpgpu.serve.library import Model


def save(path: Path, inputs: str, outputs: str, body: str, opset: int = 20) -> Path:
    """A file of a graph in ONNX's text form."""
    text = f'<ir_version: 9, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs}) {{ {body} }}'
    onnx.save_model(onnx.parser.parse_model(text), str(path))
    return path


def opened(path: Path, **dimensions: int) -> Hosted:
    return open_operand(str(path), Shaping(dimensions=dimensions))


def refused(path: Path, code: str = "E-SERVE-004", **shaping: Any) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        load(str(path), device="cpu", **shaping)
    assert caught.value.code == code, caught.value.render()
    return caught.value


def alone(path: Path, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime itself answers."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, feeds)
    return found


def cpu(path: Path, **options: Any) -> Model:
    return load(str(path), device="cpu", **options)
