"""ONNX's Scan, as ONNX Runtime reads it."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from sexpgpu.export.onnx.build import BuildOptions, build_model
from support.programs import traced


@pytest.mark.parametrize("batch", [None, 4])
def test_what_a_scan_gives_has_the_batch(batch: int | None, tmp_path: Path) -> None:
    """Where it had not, ONNX Runtime would not fuse the norm of a sum with it, and round otherwise
    than where a gather stands between, which has the batch."""
    graph, _ = traced(
        "(def record (fields :x (list f32 5 64)))\n"
        "(defn model (x)\n"
        "  (let ((total all) (scan (fn (c x) (let (t (+ c x)) (list t t)))\n"
        "                          (zeros (list (dim x 0) 64)) x :axis 1))\n"
        "    (layer-normalize (+ x all) (ones 64) (zeros 64))))"
    )
    model = build_model(graph, {}.__getitem__, BuildOptions(batch=batch))
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(tmp_path / "optimized.onnx")
    assert [node.op_type for node in optimized.graph.node][-1] == "SkipLayerNormalization"
